"""Boxes as arrays: areas, overlap, filters, grid. Pure NumPy, no model.

Shapes: N boxes, M boxes, 4 = (x0, y0, x1, y1) in pixels, exclusive ends.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

Boxes = Float[np.ndarray, "N 4"]


def areas(boxes: Boxes) -> Float[np.ndarray, " N"]:
    """Areas in square pixels; zero for empty boxes."""
    sides = np.clip(boxes[:, 2:] - boxes[:, :2], 0, None)
    return sides[:, 0] * sides[:, 1]


def iou(a: Boxes, b: Float[np.ndarray, "M 4"]) -> Float[np.ndarray, "N M"]:
    """Intersection over union of every pair; 0 where both boxes are empty.

    >>> iou(np.array([[0., 0., 2., 2.]]), np.array([[1., 0., 3., 2.]])).round(3).tolist()
    [[0.333]]
    """
    top_left = np.maximum(a[:, None, :2], b[None, :, :2])
    bottom_right = np.minimum(a[:, None, 2:], b[None, :, 2:])
    sides = np.clip(bottom_right - top_left, 0, None)
    intersection = sides[..., 0] * sides[..., 1]
    union = areas(a)[:, None] + areas(b)[None, :] - intersection
    return np.divide(intersection, union, out=np.zeros_like(union), where=union > 0)


def clip_boxes(boxes: Boxes, *, width: int, height: int) -> Boxes:
    """Boxes cut to the image frame; may become empty."""
    limits = np.array([width, height, width, height], dtype=boxes.dtype)
    return np.clip(boxes, 0, limits)


def area_ratio_mask(
    boxes: Boxes, *, width: int, height: int, min_ratio: float, max_ratio: float
) -> np.ndarray:
    """Return which boxes cover between ``min_ratio`` and ``max_ratio`` of the image, ends included.

    GOAL filters SAM's masks below 1 % (section 3.1); its code also drops those above 80 %.
    """
    ratio = areas(boxes) / float(width * height)
    return (ratio >= min_ratio) & (ratio <= max_ratio)


def suppress_duplicates(
    boxes: Boxes, scores: Float[np.ndarray, " N"], *, max_iou: float
) -> Int[np.ndarray, " K"]:
    """Greedy suppression: indices kept, best score first, ties by the lower index.

    A box is dropped when its IoU with a kept box exceeds ``max_iou``.
    """
    order = np.lexsort((np.arange(len(scores)), -scores))
    overlap = iou(boxes, boxes)
    kept: list[int] = []
    for index in order:
        if not kept or overlap[index, kept].max() <= max_iou:
            kept.append(int(index))
    return np.array(kept, dtype=np.int64)


def grid_boxes(*, width: int, height: int) -> dict[str, tuple[int, int, int, int]]:
    """Four quadrants and the centre region that joins the quadrants' midpoints.

    FAST-GOAL, section III-A. Whole pixels; an odd side gives its extra pixel to the right
    or lower half.

    >>> grid_boxes(width=8, height=4)["centre"]
    (2, 1, 6, 3)
    """
    cx, cy = width // 2, height // 2
    return {
        "top left": (0, 0, cx, cy),
        "top right": (cx, 0, width, cy),
        "bottom left": (0, cy, cx, height),
        "bottom right": (cx, cy, width, height),
        "centre": (width // 4, height // 4, width - width // 4, height - height // 4),
    }
