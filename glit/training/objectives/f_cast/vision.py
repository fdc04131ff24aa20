"""CAST (Ke et al. 2022; F-CAST section 3.1): superpixels as tokens, grouped after every few layers.

Depths 3, 3, 3, 2; from 196 superpixels to 64, 32 and 16 segments; CAST's last grouping, to 8, is
left out (F-CAST appendix B). Part features are the 64 segments after the second group of layers,
before they are grouped again; the whole is the class token after the last.

The layers are CLIP's own, so that CLIP's weights fit. The stem's norms are over a sample's own
channels and pixels (GroupNorm of one group), where CAST's are over the batch: a batch in parts or
on several processes is then the same batch.

Shapes: B images of side S, h x w features of the stem, T superpixels, F segments, D width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from glit.training.objectives.f_cast.grouping import Grouping
from glit.training.objectives.f_cast.superpixels import STRIDE

if TYPE_CHECKING:
    from transformers import CLIPModel

NUM_STAGES = 4


class CastEncoder(nn.Module):
    """Images and their superpixels to part and whole features, in the shared space.

    Args of the constructor:
        model: whose vision layers are taken over, as many as ``depths`` has in all.
        depths: layers before every grouping, and after the last.
        num_segments: superpixels, then segments after each grouping.
    """

    def __init__(
        self, model: CLIPModel, *, depths: tuple[int, ...], num_segments: tuple[int, ...]
    ) -> None:
        super().__init__()
        vision: Any = model.vision_model
        width, heads = int(vision.config.hidden_size), int(vision.config.num_attention_heads)
        self.num_superpixels, *num_centres = num_segments
        self.stem = _stem(width)
        side = int(vision.config.image_size) // STRIDE
        self.position_HWD: Tensor
        self.register_buffer("position_HWD", sine_positions(side, width), persistent=False)
        self.class_token = nn.Parameter(torch.randn(width) * 1e-6)
        self.stages = nn.ModuleList()
        layers = list(vision.encoder.layers)
        for depth in depths:
            self.stages.append(nn.ModuleList(layers[:depth]))
            layers = layers[depth:]
        self.groupings = nn.ModuleList(Grouping(width, heads, num) for num in num_centres)
        self.part_norm = nn.LayerNorm(width)
        self.whole_norm = vision.post_layernorm
        embed = model.visual_projection.out_features
        self.part_projection = nn.Linear(width, embed, bias=False)
        self.whole_projection = model.visual_projection

    def forward(
        self, pixels_B3SS: Float[Tensor, "b 3 s s"], segments_BHW: UInt8[Tensor, "b h w"]
    ) -> tuple[Float[Tensor, "b f d"], Float[Tensor, "b d"]]:
        """Part features of F segments, and the whole's; not normalised.

        Args:
            pixels_B3SS: normalised.
            segments_BHW: the superpixel of every feature of the stem.
        """
        feature_BHWD = self.stem(pixels_B3SS).permute(0, 2, 3, 1) + self.position_HWD
        token_BTD, valid_BT = means(feature_BHWD, segments_BHW, self.num_superpixels)
        class_B1D = self.class_token.expand(len(token_BTD), 1, -1)
        part_BFD = token_BTD
        for number, layers in enumerate(self.stages):
            if number:
                class_B1D, token_BTD, _ = self.groupings[number - 1](class_B1D, token_BTD, valid_BT)
                valid_BT = torch.ones_like(valid_BT[:, :1]).expand(-1, token_BTD.shape[1])
            joined = torch.cat([class_B1D, token_BTD], dim=1)
            joined = through(layers, joined, nn.functional.pad(valid_BT, (1, 0), value=True))
            class_B1D, token_BTD = joined[:, :1], joined[:, 1:]
            if number == 1:
                part_BFD = token_BTD
        whole_BD = self.whole_projection(self.whole_norm(class_B1D[:, 0]))
        return self.part_projection(self.part_norm(part_BFD)), whole_BD


def _stem(width: int) -> nn.Sequential:
    """Four small convolutions and one of a pixel (Xiao et al. 2021), a feature every 8 pixels."""
    parts: list[nn.Module] = []
    before, after = 3, max(1, width // 8)
    for number in range(4):
        stride = 2 if number < 3 else 1
        parts += [
            nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False),
            nn.GroupNorm(1, after),
            nn.ReLU(),
        ]
        before, after = after, 2 * after
    return nn.Sequential(*parts, nn.Conv2d(before, width, 1))


def sine_positions(side: int, width: int) -> Float[Tensor, "side side d"]:
    """Sines and cosines of columns and rows, each in a quarter of the width (MoCo v3's, CAST's)."""
    quarter = width // 4
    place = torch.arange(side, dtype=torch.float32)
    angle = place[:, None] / 10000 ** (torch.arange(quarter, dtype=torch.float32) / quarter)
    both = torch.cat([angle.sin(), angle.cos()], dim=1)
    columns, rows = both[None].expand(side, -1, -1), both[:, None].expand(-1, side, -1)
    found = torch.cat([columns, rows], dim=-1)
    return nn.functional.pad(found, (0, width - found.shape[-1]))


def means(
    feature_BHWD: Float[Tensor, "b h w d"], segments_BHW: UInt8[Tensor, "b h w"], num: int
) -> tuple[Float[Tensor, "b t d"], Tensor]:
    """Mean feature of every superpixel, and which of them have a feature at all."""
    number_T1 = torch.arange(num, device=segments_BHW.device)[:, None]
    inside_BTX = (segments_BHW.flatten(1)[:, None] == number_T1).to(feature_BHWD.dtype)
    count_BT1 = inside_BTX.sum(dim=2, keepdim=True)
    token_BTD = inside_BTX @ feature_BHWD.flatten(1, 2) / count_BT1.clamp_min(1)
    return token_BTD, count_BT1[..., 0] > 0


def through(layers: Any, hidden_BTD: Tensor, valid_BT: Tensor) -> Tensor:
    """CLIP's layers, every token attending to the valid ones."""
    mask = valid_BT[:, None, None, :].expand(-1, 1, valid_BT.shape[1], -1)
    for layer in layers:
        hidden_BTD = layer(hidden_BTD, mask)
    return hidden_BTD
