"""float32 linear layers on a CPU through oneDNN, with weights reordered once.

torch multiplies float32 matrices by MKL, which uses AVX2 at most on AMD's processors. oneDNN, in
the same wheel, uses AVX-512 where the processor has it: 259 GFLOP/s a core instead of 102-113
(docs/experiments.md). Elsewhere it is as fast as MKL. Both compute in float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from glit.runtime.verified_paths import agrees, probe_input


class OneDnnLinear(nn.Module):
    """``nn.Linear`` for inference, [..., in] -> [..., out]."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)
        self.out_features, self.in_features = weight.shape
        self._weight: Any = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous())

    @property
    def weight(self) -> Tensor:
        """A copy of the weights [out, in], for models that read a layer's dtype or shape."""
        return self._weight.to_dense()

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]"""
        return torch.ops.mkldnn._linear_pointwise(x, self._weight, self.bias, "none", [], "")


def linear(weight: Tensor, bias: Tensor) -> nn.Module:
    """A linear layer for inference, through oneDNN if possible.

    Args:
        weight: [out, in].
        bias: [out].
    """
    if can_use_onednn(weight):
        return OneDnnLinear(weight, bias)
    layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    layer.weight = nn.Parameter(weight.detach().contiguous(), requires_grad=False)
    layer.bias = nn.Parameter(bias.detach(), requires_grad=False)
    return layer


def use_onednn(model: nn.Module) -> None:
    """Replace all linear layers of a model that can go through oneDNN, in place."""
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is nn.Linear and can_use_onednn(layer.weight):
                setattr(parent, name, OneDnnLinear(layer.weight, layer.bias))


def can_use_onednn(weight: Tensor) -> bool:
    """Return whether a weight [out, in] is float32 on a CPU and this torch's oneDNN multiplies by
    it."""
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()
        and _agrees(weight)
    )


def _agrees(weight: Tensor) -> bool:
    def inputs() -> tuple[Tensor, Tensor]:
        x = probe_input(2, 3, weight.shape[1], like=weight)
        return x, probe_input(len(weight), like=weight)

    def plain() -> list[Tensor]:
        x, bias = inputs()
        return [functional.linear(x, weight, bias), functional.linear(x, weight)]

    def fast() -> list[Tensor]:
        x, bias = inputs()
        return [OneDnnLinear(weight, bias)(x), OneDnnLinear(weight, None)(x)]

    return agrees("linear layers (oneDNN)", package="torch", kind=None, fast=fast, plain=plain)
