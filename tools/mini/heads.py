"""What a training adds to a vision tower: position codes to start from, heads that are left out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision.ops import generalized_box_iou_loss

from tools.mini.pool import ATTRIBUTES


def sine_positions(points_N2: Tensor, width: int) -> Tensor:
    """Sine-cosine codes of points in the unit square: ``[N, width]`` (as DETR, half x, half y).

    Neighbours are alike from the first step.
    """
    quarter = width // 4
    frequencies = torch.pi * 2.0 ** torch.linspace(0, 4, quarter)
    angles = points_N2[:, :, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1).flatten(1)


def grid_points(side: int) -> Tensor:
    """Centres of the cells of a ``side`` by ``side`` grid in reading order: ``[side², 2]``."""
    axis = (torch.arange(side) + 0.5) / side
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    return torch.stack([x.flatten(), y.flatten()], dim=1)


class ValuesHead(nn.Module):
    """Several values at once, each out of so many, from one token per picture."""

    def __init__(self, width: int, sizes: Sequence[int]) -> None:
        super().__init__()
        self.sizes = list(sizes)
        self.linear = nn.Linear(width, sum(self.sizes))

    def forward(self, token_ND: Tensor, values_NA: Tensor) -> tuple[Tensor, list[float]]:
        """Sum of the mean cross-entropies, and the accuracy of each value."""
        logits = self.linear(token_ND).float().split(self.sizes, dim=-1)
        pairs = list(zip(logits, values_NA.unbind(dim=-1), strict=True))
        losses = [functional.cross_entropy(said, true) for said, true in pairs]
        return torch.stack(losses).sum(), [accuracy(said, true) for said, true in pairs]


class DenseHead(nn.Module):
    """Attributes of the object each patch shows, and whether it shows one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.sizes = [2, *(len(values) for values in ATTRIBUTES.values())]
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, sum(self.sizes))

    def forward(
        self, tokens_BTD: Tensor, patch_objects_BT: Tensor, attributes_BKA: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        """Mean cross-entropies and the accuracies on patches that show an object.

        :param patch_objects_BT: 0 for background, k + 1 for object k
        :param attributes_BKA: value indices
        """
        shown_BT = patch_objects_BT > 0
        logits = self.linear(self.norm(tokens_BTD)).split(self.sizes, dim=-1)
        loss = functional.cross_entropy(logits[0].flatten(0, 1).float(), shown_BT.flatten().long())
        rows, _ = torch.nonzero(shown_BT, as_tuple=True)
        targets_PA = attributes_BKA[rows, patch_objects_BT[shown_BT] - 1]
        metrics: dict[str, float] = {}
        for number, (name, values) in enumerate(zip(ATTRIBUTES, logits[1:], strict=True)):
            chosen = values[shown_BT].float()
            loss = loss + functional.cross_entropy(chosen, targets_PA[:, number])
            metrics[f"patch_{name}"] = accuracy(chosen, targets_PA[:, number])
        return loss, metrics


def accuracy(logits: Tensor, targets: Tensor) -> float:
    """Share of rows whose largest logit is the target's."""
    return float((logits.argmax(dim=-1) == targets).float().mean())


def box_loss(centre_boxes_N4: Tensor, wanted_N4: Tensor) -> tuple[Tensor, float]:
    """5 L1 + 2 GIoU of boxes (DETR's weights), and their mean GIoU.

    :param centre_boxes_N4: centres and sizes, fractions of the picture
    :param wanted_N4: corners
    """
    cx, cy, width, height = centre_boxes_N4.unbind(-1)
    found = torch.stack([cx - width / 2, cy - height / 2, cx + width / 2, cy + height / 2], dim=-1)
    giou = generalized_box_iou_loss(found, wanted_N4, reduction="mean")
    return 5 * functional.l1_loss(found, wanted_N4) * 4 + 2 * giou, 1 - float(giou.detach())
