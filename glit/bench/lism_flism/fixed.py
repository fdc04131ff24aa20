"""A fixed number of regions for every image: random weights propose nothing sensible."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from glit.backends.protocols import Detector
from glit.data.geometry import Boxes, area_ratio_mask, grid_boxes, iou
from glit.data.records import Box, Region
from glit.images import Pixels

NUM_GRID = len(grid_boxes(width=4, height=4))
"""Regions that FLISM adds to what is detected."""
_MAX_IOU = 0.8  # below what a propose stage calls a near-duplicate
_AREAS = (0.011, 0.79)
_TRIES = 20_000


@functools.cache
def fixed_boxes(width: int, height: int, number: int) -> Boxes:
    """The same [number, 4] boxes for every image of a size: whole pixels, 1 % to 80 % of the area.

    No two of them, and none and a cell of the grid, overlap so much that a filter would take one
    away. Made once for a size, so that no clock sees it.
    """
    rng = np.random.default_rng(0)
    taken = np.array(list(grid_boxes(width=width, height=height).values()), dtype=np.float64)
    found: list[np.ndarray] = []
    for _ in range(_TRIES):
        if len(found) == number:
            return np.array(found)
        box = _draw(rng, width, height)
        fits = area_ratio_mask(box[None], width=width, height=height, min_ratio=0.01, max_ratio=0.8)
        if fits[0] and iou(box[None], taken).max() <= _MAX_IOU:
            found.append(box)
            taken = np.concatenate([taken, box[None]])
    raise AssertionError(f"no room for {number} boxes in {width} x {height} pixels")


def _draw(rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    area, aspect = np.exp(rng.uniform(np.log(_AREAS[0]), np.log(_AREAS[1]))), rng.uniform(0.6, 1.6)
    w = min(width, max(1, round(width * float(np.sqrt(area * aspect)))))
    h = min(height, max(1, round(height * float(np.sqrt(area / aspect)))))
    x0, y0 = int(rng.integers(0, width - w + 1)), int(rng.integers(0, height - h + 1))
    return np.array([x0, y0, x0 + w, y0 + h], dtype=np.float64)


def rectangles(width: int, height: int, boxes: Boxes) -> list[np.ndarray]:
    """The boxes as masks of the image, bool [height, width] each."""
    masks = []
    for x0, y0, x1, y1 in boxes.astype(int).tolist():
        mask = np.zeros((height, width), dtype=bool)
        mask[y0:y1, x0:x1] = True
        masks.append(mask)
    return masks


class CountingDetector:
    """Counts what a detector gives, and hands on fixed boxes instead if it is told how many."""

    def __init__(self, detector: Detector, *, number: int | None, source: str) -> None:
        self._detector = detector
        self._number = number
        self._source = source
        self.num_proposed = 0
        """What the real detector gave, so far."""

    def detect(self, images: Sequence[Pixels]) -> list[list[Region]]:
        found = self._detector.detect(images)
        self.num_proposed += sum(map(len, found))
        if self._number is None:
            return found
        return [self._fixed(self._number, *image.shape[:2]) for image in images]

    def _fixed(self, number: int, height: int, width: int) -> list[Region]:
        return [
            Region(
                box=Box(x0=x0, y0=y0, x1=x1, y1=y1),
                score=round(1 - rank / 1000, 4),
                label="",
                source=self._source,
            )
            for rank, (x0, y0, x1, y1) in enumerate(fixed_boxes(width, height, number).tolist())
        ]
