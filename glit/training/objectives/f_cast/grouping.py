"""Group tokens by similarity (CAST's graph pooling, Ke et al. 2022).

Centres are chosen far apart; every token then goes to all centres in proportion to its likeness.
Segments without a pixel are masked throughout; CAST lets them take part, as zeros.

Shapes: B images, T tokens, C centres, D width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

SHARPNESS = 5.0
"""Factor on cosines before the softmax over centres, as in CAST's code."""


def farthest_points(
    point_BTD: Float[Tensor, "b t d"], valid_BT: Bool[Tensor, "b t"], num: int
) -> Int[Tensor, "b num"]:
    """Numbers of ``num`` points, each the farthest from those before and the mean.

    Only valid points, again from the beginning where there are fewer. Distances that differ by less
    than a thousandth of the largest count as equal, and of equal ones the first is taken, so that
    rounding decides nothing. Takes a step for every one of ``num``, for all images at once.
    """
    weight_BT1 = valid_BT[..., None].to(point_BTD.dtype)
    last_B1D = (point_BTD * weight_BT1).sum(dim=1, keepdim=True) / weight_BT1.sum(
        dim=1, keepdim=True
    ).clamp_min(1)
    nearest_BT = torch.where(valid_BT, torch.inf, -torch.inf).to(point_BTD.dtype)
    found: list[Tensor] = []
    largest_B1 = point_BTD.new_ones(len(point_BTD), 1)
    for _ in range(num):
        distance_BT = (point_BTD - last_B1D).square().sum(dim=-1)
        nearest_BT = torch.minimum(nearest_BT, distance_BT)
        if not found:
            largest_B1 = nearest_BT.amax(dim=1, keepdim=True).clamp_min(1e-12)
        number_B = (nearest_BT / largest_B1 * 1000).round().argmax(dim=1)
        found.append(number_B)
        index_B1D = number_B[:, None, None].expand(-1, 1, point_BTD.shape[-1])
        last_B1D = point_BTD.gather(1, index_B1D)
    return torch.stack(found, dim=1)


class Grouping(nn.Module):
    """From T tokens to C, with the class token along."""

    def __init__(self, width: int, num_heads: int, num_centres: int) -> None:
        super().__init__()
        self.num_centres = num_centres
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, num_heads, batch_first=True)
        self.bias = nn.Parameter(torch.randn(width) * 1e-2)
        self.widen = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU())
        self.narrow = nn.Sequential(nn.LayerNorm(4 * width), nn.Linear(4 * width, width))

    def forward(
        self,
        class_B1D: Float[Tensor, "b 1 d"],
        token_BTD: Float[Tensor, "b t d"],
        valid_BT: Bool[Tensor, "b t"],
    ) -> tuple[Float[Tensor, "b 1 d"], Float[Tensor, "b c d"], Float[Tensor, "b t c"]]:
        """The class token, the centres, and how much of every token went to each."""
        with torch.no_grad():
            points = token_BTD.detach().float()
            centre_BC = farthest_points(points, valid_BT, self.num_centres)
        index_BCD = centre_BC[..., None].expand(-1, -1, token_BTD.shape[-1])
        normed = self.norm(token_BTD)
        mixed, _ = self.attention(
            normed, normed, normed, key_padding_mask=~valid_BT, need_weights=False
        )
        node_BTD = token_BTD + mixed
        weight_BT1 = valid_BT[..., None].to(node_BTD.dtype)
        mean_B1D = (node_BTD * weight_BT1).sum(dim=1, keepdim=True) / weight_BT1.sum(
            dim=1, keepdim=True
        ).clamp_min(1)
        node_BTD = node_BTD - mean_B1D + self.bias
        likeness_BTC = F.normalize(node_BTD, dim=-1) @ F.normalize(
            node_BTD.gather(1, index_BCD), dim=-1
        ).transpose(1, 2)
        share_BTC = (SHARPNESS * likeness_BTC).softmax(dim=-1) * weight_BT1
        total_BC1 = share_BTC.sum(dim=1)[..., None].clamp_min(1e-6)
        grouped_BCX = share_BTC.transpose(1, 2) @ self.widen(token_BTD) / total_BC1
        centre_BCD = self.narrow(grouped_BCX) + token_BTD.gather(1, index_BCD)
        class_B1D = class_B1D + self.narrow(self.widen(class_B1D))
        return class_B1D, centre_BCD, share_BTC
