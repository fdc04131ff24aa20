"""Linear layers on a CPU whose weights and inputs have 8 bits, for ``precision = "int8"``.

A row of the input has a scale, its largest magnitude over 127, and a row of the weights one, over
63. Products of whole numbers add up exactly, so that a row's result depends on no other row of its
batch, and on no processor: one without VNNI adds pairs of products in 16 bits, an input shifted to
0 to 255 by a weight each, where weights up to 63 are the largest that cannot overflow.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

from glit.errors import UserError

_INPUT, _WEIGHT = 127, 63
"""Largest magnitudes."""
_ROWS = 512
"""Rows that are multiplied at a time, so that their sums stay in the processor's cache."""


class Int8Linear(nn.Module):
    """``nn.Linear`` for inference, [..., in] -> [..., out] in float32."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.out_features, self.in_features = layer.weight.shape
        self.bias = layer.bias
        self._weight_OI, scale_O1 = _quantized(layer.weight.detach().float(), _WEIGHT)
        self._scale_O = scale_O1[:, 0]

    @property
    def weight(self) -> Tensor:
        """The weights [out, in] that it multiplies by, float32."""
        return self._weight_OI * self._scale_O[:, None]

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]"""
        rows_RI = x.reshape(-1, self.in_features)
        found_RO = rows_RI.new_empty(len(rows_RI), self.out_features)
        for rows, found in zip(rows_RI.split(_ROWS), found_RO.split(_ROWS), strict=True):
            whole, scale_R1 = _quantized(rows, _INPUT)
            found.copy_(torch._int_mm(whole, self._weight_OI.t())).mul_(scale_R1)
            if self.bias is None:
                found *= self._scale_O
            else:
                torch.addcmul(self.bias, found, self._scale_O, out=found)
        return found_RO.view(*x.shape[:-1], self.out_features)


def _quantized(rows_RI: Tensor, largest: int) -> tuple[Tensor, Tensor]:
    """Round float rows [R, I] to whole numbers from -largest to largest.

    Returns:
        The numbers, int8 [R, I], and the scale of each row, float32 [R, 1].
    """
    scale_R1 = rows_RI.abs().amax(1, keepdim=True).clamp_min(1e-30) / largest
    return (rows_RI / scale_R1).round_().to(torch.int8), scale_R1


@cache
def is_exact() -> bool:
    """Return whether this machine adds up products of inputs and weights exactly, the largest
    too."""
    input_RI = torch.full((_ROWS, 576), _INPUT, dtype=torch.int8)
    weight_IO = torch.full((64, 576), _WEIGHT, dtype=torch.int8).t()
    wanted = 576 * _INPUT * _WEIGHT
    sums = (
        sign * torch._int_mm(input_RI[:rows], sign * weight_IO[:, :outputs])
        for rows in (1, 4, 64, _ROWS)
        for outputs in (2, 64)
        for sign in (1, -1)
    )
    return all(bool((each == wanted).all()) for each in sums)


def use_int8(model: nn.Module) -> None:
    """Replace all linear layers of a model with more than one output, in place.

    Of one output, AVX-512 without VNNI adds the largest products wrongly.

    Raises:
        UserError: this machine would compute wrong numbers.
    """
    if not is_exact():
        raise UserError(
            "precision = 'int8': this machine does not add products of 8 bits exactly, which gives "
            "wrong numbers; use 'auto'"
        )
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is nn.Linear and layer.out_features > 1:
                setattr(parent, name, Int8Linear(layer))
