"""Linear layers of float32 on a CPU through oneDNN, weights reordered into its layout once.

torch multiplies float32 matrices by MKL, which keeps to AVX2 on AMD's processors; oneDNN, in the
same wheel, takes what the processor has. On one with 512-bit units that is 2.5 times the rate at
equal precision (docs/experiments.md); elsewhere it is as fast.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class OneDnnLinear(nn.Module):
    """``nn.Linear`` for inference, [..., in] -> [..., out]."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)
        self._weight: Any = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous())

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]"""
        return torch.ops.mkldnn._linear_pointwise(x, self._weight, self.bias, "none", [], "")


def linear(weight: Tensor, bias: Tensor) -> nn.Module:
    """A linear map for inference, through oneDNN where it can be. weight: [out, in]."""
    if can_use_onednn(weight):
        return OneDnnLinear(weight, bias)
    layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    layer.weight = nn.Parameter(weight.detach().contiguous(), requires_grad=False)
    layer.bias = nn.Parameter(bias.detach(), requires_grad=False)
    return layer


def can_use_onednn(weight: Tensor) -> bool:
    """Whether a weight is one of float32 on a CPU, and oneDNN is in this torch."""
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def use_onednn(model: nn.Module) -> None:
    """Change all linear layers of a model in place, where they can go through oneDNN."""
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is nn.Linear and can_use_onednn(layer.weight):
                setattr(parent, name, OneDnnLinear(layer.weight, layer.bias))
