"""A fixed number of regions for every image: random weights propose nothing sensible."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glit.data.geometry import Boxes, grid_boxes
from glit.data.records import Box, Region
from glit.images import Pixels
from glit.models.backends.protocols import Detector

NUM_GRID = len(grid_boxes(width=4, height=4))
"""Regions that FLISM adds to what is detected."""
_SIDES = (0.13, 0.7)
"""Sides of the smallest and the largest box, as shares of the image's."""
_STEP = (0.41, 0.38)
"""From a box to the next, as shares of the room that a box has."""


def fixed_boxes(width: int, height: int, number: int) -> Boxes:
    """The same [number, 4] boxes for every image of a size: whole pixels, 2 % to 49 % of the area.

    No two of them, and none and a cell of the grid, overlap so much that a filter would take one
    away.
    """
    each = np.arange(number)[:, None]
    sizes = np.linspace(*_SIDES, number)[:, None] * np.where(
        each % 2, [1.1, 1 / 1.1], [1 / 1.1, 1.1]
    )
    starts = each * _STEP % 1 * (1 - sizes)
    return (np.hstack([starts, starts + sizes]) * [width, height, width, height]).round()


def rectangles(width: int, height: int, boxes: Boxes) -> list[np.ndarray]:
    """The boxes as masks of the image, bool [height, width] each."""
    x, y = np.arange(width), np.arange(height)[:, None]
    return [(x0 <= x) & (x < x1) & (y0 <= y) & (y < y1) for x0, y0, x1, y1 in boxes]


class FixedDetector:
    """Runs a detector, and hands on fixed boxes instead of what it finds."""

    def __init__(self, detector: Detector, *, number: int, source: str) -> None:
        self._detector = detector
        self._number = number
        self._source = source

    def detect(self, images: Sequence[Pixels]) -> list[list[Region]]:
        self._detector.detect(images)
        return [self._fixed(*image.shape[:2]) for image in images]

    def _fixed(self, height: int, width: int) -> list[Region]:
        boxes = fixed_boxes(width, height, self._number).tolist()
        return [
            Region(
                box=Box(x0=x0, y0=y0, x1=x1, y1=y1),
                score=round(1 - rank / 1000, 4),
                label="",
                source=self._source,
            )
            for rank, (x0, y0, x1, y1) in enumerate(boxes)
        ]
