"""Supervision a training adds to a vision tower and an export leaves out."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from glit.scenes.vocabulary import BACKGROUNDS, LIGHTS
from tools.mini.pool import ATTRIBUTES


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


class SettingHead(nn.Module):
    """Background and light, from one token per picture."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, len(BACKGROUNDS) + len(LIGHTS))

    def forward(self, pooled_BD: Tensor, settings_B2: Tensor) -> Tensor:
        """Sum of the two mean cross-entropies."""
        background, light = (
            self.linear(pooled_BD).float().split([len(BACKGROUNDS), len(LIGHTS)], dim=-1)
        )
        return functional.cross_entropy(background, settings_B2[:, 0]) + functional.cross_entropy(
            light, settings_B2[:, 1]
        )


class CropHead(nn.Module):
    """Shape, colour and pattern of the object a crop was cut around."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.sizes = [len(values) for values in ATTRIBUTES.values()][:3]
        self.linear = nn.Linear(width, sum(self.sizes))

    def forward(self, pooled_BD: Tensor, attributes_BA: Tensor) -> tuple[Tensor, dict[str, float]]:
        """Sum of mean cross-entropies, and the share of right shapes."""
        logits = self.linear(pooled_BD).float().split(self.sizes, dim=-1)
        loss = sum(
            (
                functional.cross_entropy(values, attributes_BA[:, i])
                for i, values in enumerate(logits)
            ),
            start=torch.zeros(()),
        )
        return loss, {"crop_shape": accuracy(logits[0], attributes_BA[:, 0])}


def accuracy(logits: Tensor, targets: Tensor) -> float:
    """Share of rows whose largest logit is the target's."""
    return float((logits.argmax(dim=-1) == targets).float().mean())
