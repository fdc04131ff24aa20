"""Polygons as run-length masks, pixel for pixel as COCO's library draws them. Pure NumPy.

The outline is drawn five times enlarged, as lines of Bresenham; of its points those count that lie
on the middle of a column, and each begins or ends a run there (``rleFrPoly`` of
github.com/cocodataset/cocoapi, common/maskApi.c).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from glit.data.rle import MOST_TEXT, Runs, compress_rle, read_rle

_SCALE = 5
MOST_POINTS = 1 << 22
"""Points of the enlarged outlines of a region; a polygon round a picture of 100 megapixels has a
twentieth."""
_MOST_SIDE = 1 << 16
"""Pixels of a side of a mask."""


def segmentation_text(segmentation: Any, *, height: int, width: int) -> str:
    """COCO's ``segmentation``, polygons or run lengths, as COCO's compressed run lengths.

    Args:
        segmentation: a list of polygons ``[x0, y0, x1, y1, ...]`` in pixels, or ``{"size": [height,
            width], "counts": a list of numbers or a text}``.
        height: of the picture, pixels.
        width: of the picture, pixels.

    Raises:
        ValueError: it is damaged, of another size, or larger than a mask may be.
    """
    if isinstance(segmentation, dict):
        counts = segmentation["counts"]
        if list(segmentation["size"]) != [height, width]:
            raise ValueError(f"a mask of size {segmentation['size']!r:.40}, want {height, width}")
        if isinstance(counts, str) and len(counts) > MOST_TEXT:
            raise ValueError(f"a mask of {len(counts)} characters, want at most {MOST_TEXT}")
        runs = read_rle(counts, height=height, width=width)
        return counts if isinstance(counts, str) else compress_rle(runs.tolist())
    polygons = [np.asarray(each, dtype=np.float64).reshape(-1, 2) for each in segmentation]
    return compress_rle(polygon_runs(polygons, height=height, width=width).tolist())


def polygon_runs(polygons: Sequence[Float[np.ndarray, "_ 2"]], *, height: int, width: int) -> Runs:
    """Run lengths of the union of polygons.

    >>> polygon_runs([np.array([[1.0, 1], [3, 1], [3, 3], [1, 3]])], height=4, width=4).tolist()
    [5, 2, 2, 2, 5]

    Args:
        polygons: of each its corners, x and y in pixels from the picture's top left edge.
        height: of the picture, pixels.
        width: of the picture, pixels.

    Raises:
        ValueError: a corner is no finite number, or the outlines are too long to draw.
    """
    if not (0 < height <= _MOST_SIDE and 0 < width <= _MOST_SIDE):
        raise ValueError(f"a mask of {width}x{height} pixels, want sides of 1 to {_MOST_SIDE}")
    length = 0.0
    for corners in polygons:
        if len(corners) < 3:
            raise ValueError(f"a polygon of {len(corners)} corners, want three")
        with np.errstate(over="ignore", invalid="ignore"):
            sides = np.abs(corners - np.roll(corners, -1, axis=0)).max(axis=1) * _SCALE + 1
            length += float(sides.sum()) + float(np.abs(corners).max())
    if not length <= MOST_POINTS:  # NaN is not
        raise ValueError("a polygon whose corners are no finite numbers, or too far apart")
    # between an odd and the next even edge lies one polygon; the union is where any of them is
    edges = [_edges(corners, height, width) for corners in polygons]
    places = np.concatenate([np.zeros(0, np.int64), *edges])
    steps = np.concatenate(
        [np.zeros(0, np.int64), *(1 - 2 * (np.arange(len(e)) % 2) for e in edges)]
    )
    order = np.argsort(places, kind="stable")
    places, inside = places[order], np.cumsum(steps[order])
    last = np.append(places[1:] != places[:-1], True)[: len(places)]
    places, inside = places[last], inside[last] > 0
    changes = places[inside != np.concatenate(([False], inside[:-1]))]
    ends = np.concatenate(([0], changes[changes < height * width], [height * width]))
    return np.diff(ends)


def _edges(corners: Float[np.ndarray, "P 2"], height: int, width: int) -> Int[np.ndarray, " E"]:
    """Places, in columns from the top left, where a polygon begins and ends, in order."""
    x, y = _outline((_SCALE * corners + 0.5).astype(np.int64))
    across = np.flatnonzero(x[1:] != x[:-1]) + 1
    before, after = x[across - 1], x[across]
    column = (np.where(after < before, after, after - 1) + 0.5) / _SCALE - 0.5
    row = (np.minimum(y[across], y[across - 1]) + 0.5) / _SCALE - 0.5
    kept = (np.floor(column) == column) & (column >= 0) & (column <= width - 1)
    row = np.ceil(np.clip(row[kept], 0, height)).astype(np.int64)
    found, times = np.unique(column[kept].astype(np.int64) * height + row, return_counts=True)
    odd = found[times % 2 == 1]
    return odd if len(odd) % 2 == 0 else np.append(odd, height * width)


def _outline(
    corners: Int[np.ndarray, "P 2"],
) -> tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"]]:
    """All points of the lines from corner to corner, back to the first."""
    starts, ends = corners, np.roll(corners, -1, axis=0)
    steps = np.abs(ends - starts)
    flat = steps[:, 0] >= steps[:, 1]
    flipped = np.where(flat, starts[:, 0] > ends[:, 0], starts[:, 1] > ends[:, 1])
    low = np.where(flipped[:, None], ends, starts)
    high = np.where(flipped[:, None], starts, ends)
    number = steps.max(axis=1) + 1
    line = np.repeat(np.arange(len(corners)), number)
    at = np.arange(len(line)) - np.repeat(np.cumsum(number) - number, number)
    at = np.where(flipped[line], number[line] - 1 - at, at)
    rise = high - low
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(flat, rise[:, 1] / steps[:, 0], rise[:, 0] / steps[:, 1])
    slope = np.nan_to_num(slope)
    other = np.where(flat, low[:, 1], low[:, 0])[line] + slope[line] * at + 0.5
    main = np.where(flat, low[:, 0], low[:, 1])[line] + at
    minor = np.trunc(other).astype(np.int64)  # C's conversion goes towards zero
    is_flat = flat[line]
    return np.where(is_flat, main, minor), np.where(is_flat, minor, main)
