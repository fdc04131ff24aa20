"""float32 matrix products on a GPU's half-precision cores, as exact as float32.

A number x is the sum of two halves, ``high = half(x)`` and ``low = half((x - high) * 2**11)``, as
``x = high + 2**-11 * low`` to 22 bits. Of the four products of a sum of two with a sum of two the
smallest, low times low, lies below float32's rounding and is left out:

    a @ b = high_a @ high_b + 2**-11 * (high_a @ low_b + low_a @ high_b)

Products of halves are exact in float32, in which the sums are kept, so the error is that of float32
(Ootomo and Yokota 2022, "Recovering single precision accuracy from Tensor Cores while surpassing
the FP32 theoretical peak performance"). Three products of halves take the place of one of float32:
on an H200 a third of 990 TFLOP/s instead of 67, by the data sheet.

Numbers beyond 65,504, the largest half, become infinite and show in the result as infinity or NaN.

Shape suffixes: N rows, K inputs, M outputs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from glit.gpu.probe import chosen
from glit.runtime.verified_paths import agrees, probe_input

_SCALE = 2.0**11
FAST_PATH = "products of halves"
_TOLERANCE = 2e-6
"""Largest difference, as a share of the largest number; float32 itself is off by some 3e-7."""


def split_NK(x_NK: Tensor) -> Tensor:
    """High and low halves side by side, float16 [N, 2 * K], of float32 [N, K]."""
    width = x_NK.shape[1]
    both = torch.empty(len(x_NK), 2 * width, dtype=torch.float16, device=x_NK.device)
    high, low = both[:, :width], both[:, width:]
    high.copy_(x_NK)
    low.copy_((x_NK - high).mul_(_SCALE))
    return both


class SplitLinear(nn.Module):
    """``nn.Linear`` of float32 for inference, [..., K] -> [..., M], by products of halves."""

    def __init__(self, weight_MK: Tensor, bias_M: Tensor | None) -> None:
        super().__init__()
        width = weight_MK.shape[1]
        both = split_NK(weight_MK.detach().float())
        high, low = both[:, :width], both[:, width:]
        self.high_KM = nn.Buffer(high.T.contiguous(), persistent=False)
        self.low_high_KM = nn.Buffer(torch.cat([low, high], dim=1).T.contiguous(), persistent=False)
        """[2 * K, M]: meets high and low halves side by side."""
        self.bias = None if bias_M is None else nn.Parameter(bias_M.detach(), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., M], both float32."""
        width = len(self.high_KM)
        both_NK = split_NK(x.reshape(-1, width))
        small_NM = _product(both_NK, self.low_high_KM)
        out_NM = _product(both_NK[:, :width], self.high_KM)
        out_NM = out_NM.add_(small_NM, alpha=1 / _SCALE)
        if self.bias is not None:
            out_NM += self.bias
        return out_NM.view(*x.shape[:-1], -1)


def _product(a_NK: Tensor, b_KM: Tensor) -> Tensor:
    """float32 [N, M], summed in float32, of float16 matrices."""
    if a_NK.device.type == "cuda":
        return torch.mm(a_NK, b_KM, out_dtype=torch.float32)
    return a_NK.float() @ b_KM.float()  # the same algorithm elsewhere, for tests


def use_split_products(model: nn.Module, *, always: bool = False) -> None:
    """Replace all linear layers of float32 that this GPU multiplies faster in halves, in place.

    Args:
        model: in evaluation mode, on its device.
        always: on any device, for tests and measurements.
    """
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is nn.Linear and (always or can_split(layer.weight)):
                setattr(parent, name, SplitLinear(layer.weight, layer.bias))


def can_split(weight_MK: Tensor) -> bool:
    """Return whether a float32 weight lies on a GPU on which products in halves are exact and
    faster."""
    if weight_MK.device.type != "cuda" or weight_MK.dtype != torch.float32:
        return False
    return is_chosen(weight_MK.device)


def is_chosen(device: torch.device) -> bool:
    """Return whether products of halves are exact on a GPU, and faster: a layer of SAM's ViT-H,
    timed."""

    def ways() -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
        like = torch.empty(0, device=device)
        weight, x = probe_input(5120, 1280, like=like), probe_input(4096, 1280, like=like)
        split = SplitLinear(weight, None)
        return lambda: split(x), lambda: functional.linear(x, weight)

    like = torch.empty(0, device=device)
    return chosen(FAST_PATH, device, is_right=lambda: _agrees(like), ways=ways)


def _agrees(like: Tensor) -> bool:
    """Compared in float64, rows of very different sizes among them."""

    def inputs() -> tuple[Tensor, Tensor, Tensor]:
        sizes = 2.0 ** torch.arange(-18, 13, 0.5, device=like.device)
        x = probe_input(len(sizes), 256, like=like) * sizes[:, None]
        return x, probe_input(96, 256, like=like, seed=1), probe_input(96, like=like, seed=2)

    def scaled(out: Tensor, x: Tensor) -> list[Tensor]:
        return list((out / x.abs().amax(dim=1, keepdim=True)).float())

    def plain() -> list[Tensor]:
        x, weight, bias = inputs()
        return scaled(functional.linear(x.double(), weight.double(), bias.double()), x)

    def fast() -> list[Tensor]:
        x, weight, bias = inputs()
        return scaled(SplitLinear(weight, bias)(x), x)

    return agrees(
        FAST_PATH,
        package="torch",
        kind=like.device.type,
        fast=fast,
        plain=plain,
        tolerance=_TOLERANCE,
    )
