"""Measure areas and boxes of masks from the decoder's logits in one GPU kernel.

A mask of an image of 4 megapixels takes 16 MB once it is upscaled, and is then read five times; the
logits it comes from are 256 x 256. The kernel interpolates every pixel anew from them (twice, as
``Sam.postprocess_masks`` does: to the encoder's input, then to the image), compares, and keeps
counts and extremes alone.

Written in Triton, which comes with torch for NVIDIA's GPUs; a CPU runs it by Triton's interpreter,
which is how it is tested.

Shape suffixes: K masks, h and w sides of the logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_jit: Any = triton.jit  # whose types say that a kernel never returns
_ROWS = 8
_COLUMNS = 128
"""Pixels of the image that a program is at, at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskFigures:
    """The figures of K masks."""

    above_K3: Tensor
    """Pixels above each of three thresholds, int32."""
    boxes_K4: Tensor
    """First column and row, last column and row above the first threshold, int32; zeros for an
    empty mask."""


def measure_masks(
    logits_Khw: Tensor,
    *,
    factor: int,
    input_size: tuple[int, int],
    original_size: tuple[int, int],
    thresholds: tuple[float, float, float],
) -> MaskFigures:
    """Masks of the image's size, measured.

    Args:
        logits_Khw: the mask decoder's, float32, contiguous.
        factor: by which they are upscaled to the encoder's input.
        input_size: height and width of the image in the encoder's input.
        original_size: height and width of the image.
        thresholds: boxes are of what lies above the first.
    """
    num_masks, rows, columns = logits_Khw.shape
    height, width = original_size
    device = logits_Khw.device
    above_K3 = torch.zeros(num_masks, 3, dtype=torch.int32, device=device)
    extremes = torch.tensor([width, height, -1, -1], dtype=torch.int32)
    boxes_K4 = extremes.to(device, non_blocking=True).repeat(num_masks, 1)
    _measure[(num_masks, triton.cdiv(height, _ROWS))](
        logits_Khw, above_K3, boxes_K4,
        rows, columns, 1.0 / factor, *input_size, height, width,
        input_size[0] / height, input_size[1] / width, *thresholds,
        num_rows=_ROWS, num_columns=_COLUMNS,
    )  # fmt: skip
    return MaskFigures(above_K3=above_K3, boxes_K4=boxes_K4 * (above_K3[:, :1] > 0))


@_jit
def _source(index, scale, length):
    """Return where torch's bilinear interpolation takes an output position from: two positions, and
    how far it lies from the first."""
    position = tl.maximum((index.to(tl.float32) + 0.5) * scale - 0.5, 0.0)
    first = tl.minimum(position.to(tl.int32), length - 1)
    return first, tl.minimum(first + 1, length - 1), position - first.to(tl.float32)


@_jit
def _mixed(a, b, part):
    return (1.0 - part) * a + part * b


@_jit
def _of_input(logits, y, x, rows, columns, columns_used, scale):
    """The logit at a pixel of the encoder's input."""
    y0, y1, dy = _source(y, scale, rows)
    x0, x1, dx = _source(x, scale, columns_used)
    top = _mixed(tl.load(logits + y0 * columns + x0), tl.load(logits + y0 * columns + x1), dx)
    bottom = _mixed(tl.load(logits + y1 * columns + x0), tl.load(logits + y1 * columns + x1), dx)
    return _mixed(top, bottom, dy)


@_jit
def _measure(
    logits, above, boxes,
    rows, columns, scale, input_height, input_width, height, width,
    scale_y, scale_x, first_threshold, second_threshold, third_threshold,
    num_rows: tl.constexpr, num_columns: tl.constexpr,
):  # fmt: skip
    mask, block = tl.program_id(0), tl.program_id(1)
    logits += mask.to(tl.int64) * rows * columns
    y = (block * num_rows + tl.arange(0, num_rows))[:, None]
    y0, y1, dy = _source(y, scale_y, input_height)
    first = tl.zeros((num_rows, num_columns), tl.int32)
    second = tl.zeros((num_rows, num_columns), tl.int32)
    third = tl.zeros((num_rows, num_columns), tl.int32)
    left = tl.full((num_rows, num_columns), 1 << 30, tl.int32)
    right = tl.full((num_rows, num_columns), -1, tl.int32)
    for start in range(0, width, num_columns):
        x = (start + tl.arange(0, num_columns))[None, :]
        x0, x1, dx = _source(x, scale_x, input_width)
        top = _mixed(
            _of_input(logits, y0, x0, rows, columns, columns, scale),
            _of_input(logits, y0, x1, rows, columns, columns, scale),
            dx,
        )
        bottom = _mixed(
            _of_input(logits, y1, x0, rows, columns, columns, scale),
            _of_input(logits, y1, x1, rows, columns, columns, scale),
            dx,
        )
        logit = _mixed(top, bottom, dy)
        inside = (y < height) & (x < width)
        one = inside & (logit > first_threshold)
        first += one.to(tl.int32)
        second += (inside & (logit > second_threshold)).to(tl.int32)
        third += (inside & (logit > third_threshold)).to(tl.int32)
        left = tl.minimum(left, tl.where(one, x, 1 << 30))
        right = tl.maximum(right, tl.where(one, x, -1))
    some = right >= 0
    rows_here = y + tl.zeros((num_rows, num_columns), tl.int32)
    tl.atomic_add(above + mask * 3, tl.sum(first))
    tl.atomic_add(above + mask * 3 + 1, tl.sum(second))
    tl.atomic_add(above + mask * 3 + 2, tl.sum(third))
    tl.atomic_min(boxes + mask * 4, tl.min(left))
    tl.atomic_min(boxes + mask * 4 + 1, tl.min(tl.where(some, rows_here, 1 << 30)))
    tl.atomic_max(boxes + mask * 4 + 2, tl.max(right))
    tl.atomic_max(boxes + mask * 4 + 3, tl.max(tl.where(some, rows_here, -1)))
