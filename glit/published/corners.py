"""Tell boxes of a corner and a size from boxes of two corners, over all boxes of a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_SLACK_PX = 1.0
_FEWEST = 3
"""Boxes that leave their picture as a corner and a size."""
_MOST_AGAINST = 0.02
"""Share of boxes that cannot be two corners, as their far corner is before the near one."""


class CornerCount:
    """Counts boxes of a file that are read as a corner and a size, and may be two corners."""

    def __init__(self) -> None:
        self._boxes = self._against = self._leaving = 0

    def add(self, boxes: Iterable[Sequence[float]], size: tuple[float, float]) -> None:
        """Add boxes of a picture: xyxy in pixels, as they are read, and its width and height."""
        width, height = (side + _SLACK_PX for side in size)
        for x0, y0, x1, y1 in boxes:
            far_x, far_y = x1 - x0, y1 - y0  # as the file has them
            self._boxes += 1
            self._against += not (x0 < far_x <= width and y0 < far_y <= height)
            self._leaving += x1 > width or y1 > height

    @property
    def fault(self) -> str:
        """Why the boxes are two corners; empty if they may be a corner and a size."""
        if self._leaving < _FEWEST or self._against > _MOST_AGAINST * self._boxes:
            return ""
        return (
            f"{self._leaving} of {self._boxes} boxes leave their picture as a corner and a size, "
            "none as two corners"
        )
