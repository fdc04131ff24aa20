"""Polygons as run-length masks, drawn by COCO's library, which checks nothing of what it is given:
it draws outlines five times enlarged, point by point.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from glit.data.rle import MOST_TEXT, compress_rle, read_rle

_SCALE = 5
MOST_POINTS = 1 << 22
"""Points of the enlarged outlines of a region; a polygon round a picture of 100 megapixels has a
twentieth."""
_MOST_SIDE = 1 << 16
"""Pixels of a side of a mask."""


def segmentation_text(segmentation: Any, *, height: int, width: int) -> str:
    """COCO's ``segmentation``, polygons or run lengths, as COCO's compressed run lengths.

    >>> segmentation_text([[1, 1, 3, 1, 3, 3, 1, 3]], height=4, width=4)  # 5, 2, 2, 2, 5
    '52203'

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
    if not polygons:
        raise ValueError("a mask without a polygon")
    return _drawn(polygons, height=height, width=width)


def _drawn(polygons: Sequence[Float[np.ndarray, "_ 2"]], *, height: int, width: int) -> str:
    """The union of polygons as COCO's run lengths.

    Raises:
        ValueError: a corner is no finite number, or the outlines are too long to draw.
    """
    from pycocotools import mask as coco  # a tenth of a second that others need not wait

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
    outlines = [corners.ravel().tolist() for corners in polygons]
    union: Any = coco.merge(coco.frPyObjects(outlines, height, width))
    return union["counts"].decode("ascii")
