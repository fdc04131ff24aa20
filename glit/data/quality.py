"""Measure an image's quality by its pixels, without a model.

Everything is measured on grey values of the image reduced to at most 512 pixels a side by a whole
factor, which is about what models see. Sums are of whole numbers, so that every machine finds the
same values.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from glit.images import Pixels

SIDE_PX = 512
_CELL_H, _CELL_W = 8, 16
_STEP = 32
"""Least difference of neighbouring grey values at the edge of a letter."""
_EDGES = 0.06
"""Least share of a cell's pixels at a rising edge, and at a falling one."""
_TWO_TONES = 0.6
"""Least share of a cell's pixels near its darkest or its brightest value."""

Grey = UInt8[np.ndarray, "_h _w"]


def measure(pixels: Pixels) -> dict[str, float]:
    """The measures of an image.

    - ``sharpness``: variance of the Laplacian (Pech-Pacheco et al., ICPR 2000); below 30 an
      image of this size is blurred, fifty photographs had 400 and more.
    - ``brightness``, ``contrast``: mean and standard deviation of grey values, as shares of 255.
    - ``entropy``: of the grey values' histogram, bits; 0 for one colour, at most 8.
    - ``aspect``: the longer side over the shorter one.
    - ``text``: share of the area that looks like lines of letters: an estimate, from the density
      of edges between two tones.
    """
    height, width = pixels.shape[:2]
    grey = _reduced(pixels)
    counts = np.bincount(grey.ravel(), minlength=256)
    mean, deviation = _moments(counts)
    shares = counts[counts > 0] / grey.size
    return {
        "sharpness": round(_laplacian_variance(grey), 3),
        "brightness": round(mean / 255, 6),
        "contrast": round(deviation / 255, 6),
        "entropy": round(abs(float(-(shares * np.log2(shares)).sum())), 6),
        "aspect": round(max(height, width) / min(height, width), 6),
        "text": round(_text_share(grey), 6),
    }


def sharpness(pixels: Pixels) -> float:
    """Return the measure ``sharpness``: the variance of the reduced image's Laplacian."""
    return round(_laplacian_variance(_reduced(pixels)), 3)


def _reduced(pixels: Pixels) -> Grey:
    """The grey values of an image of at most 512 pixels a side."""
    image = Image.fromarray(pixels).convert("L")
    factor = -(-max(pixels.shape[:2]) // SIDE_PX)
    return np.asarray(image.reduce(factor) if factor > 1 else image)


def _moments(counts: np.ndarray) -> tuple[float, float]:
    values = np.arange(len(counts))
    number, total = int(counts.sum()), int((counts * values).sum())
    squares = int((counts * values * values).sum())
    return total / number, math.sqrt(max(0, number * squares - total * total)) / number


def _laplacian_variance(grey: Grey) -> float:
    if min(grey.shape) < 3:
        return 0.0
    g = grey.astype(np.int16)
    edges = g[:-2, 1:-1] + g[2:, 1:-1] + g[1:-1, :-2] + g[1:-1, 2:] - 4 * g[1:-1, 1:-1]
    return _moments(np.bincount((edges + 1020).ravel(), minlength=2041))[1] ** 2


def _text_share(grey: Grey) -> float:
    """Share of cells that look like text and have such a neighbour on both sides, or are one."""
    rows, columns = grey.shape[0] // _CELL_H, grey.shape[1] // _CELL_W
    if not rows or columns < 3:
        return 0.0
    g = grey[: rows * _CELL_H, : columns * _CELL_W].astype(np.int16)
    step = np.diff(g, axis=1, prepend=g[:, :1])

    def cells(values: np.ndarray) -> np.ndarray:
        split = values.reshape(rows, _CELL_H, columns, _CELL_W)
        return split.transpose(0, 2, 1, 3).reshape(rows, columns, -1)

    values = cells(g)
    low, high = values.min(axis=2, keepdims=True), values.max(axis=2, keepdims=True)
    above, span = 4 * (values - low), high - low
    is_text = (
        (span[:, :, 0] > 2 * _STEP)
        & (cells(step > _STEP).mean(axis=2) > _EDGES)
        & (cells(step < -_STEP).mean(axis=2) > _EDGES)
        & (((above < span) | (above > 3 * span)).mean(axis=2) > _TWO_TONES)
    )
    middle = is_text[:, :-2] & is_text[:, 1:-1] & is_text[:, 2:]
    lines = np.zeros_like(is_text)
    for first in range(3):
        lines[:, first : first + columns - 2] |= middle
    return float(lines.mean())
