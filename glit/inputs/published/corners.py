"""Tell boxes of a corner and a size from boxes of two corners, and pixels from other units, over
all boxes of a file."""

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


_THOUSAND = 1000
_MOST_LEAVE = 2 / 3
"""Share of boxes that leave their picture, from which they are no pixels."""
_LARGEST_SHARE = 2
"""Above it, no box of a file is in shares; nobody draws boxes of two pixels."""


class UnitCount:
    """Counts boxes of a file that are read as pixels, and may be thousandths or shares of the
    picture's sides; or that are read as shares, and may be neither."""

    def __init__(self) -> None:
        self._boxes = self._leaving = self._over = 0
        self._thousandths = self._shares = True
        self._first: Sequence[float] = ()

    def add(
        self, boxes: Iterable[Sequence[float]], size: tuple[float, float], *, xywh: bool
    ) -> None:
        """Add boxes of a picture: xyxy as they are read, its width and height, and whether the file
        has a corner and a size."""
        width, height = (side + _SLACK_PX for side in size)
        for x0, y0, x1, y1 in boxes:
            given = (x0, y0, x1 - x0, y1 - y0) if xywh else (x0, y0, x1, y1)
            self._first = self._first or given
            self._boxes += 1
            self._leaving += (x1 > width or y1 > height) and min(size) < _THOUSAND
            self._thousandths &= all(0 <= e <= _THOUSAND and e == round(e) for e in given)
            self._shares &= all(-1 <= e <= _LARGEST_SHARE for e in given) and min(size) >= 8

    def add_shares(self, boxes: Iterable[Sequence[float]]) -> None:
        """Add boxes, xyxy, that are read as shares."""
        for box in boxes:
            is_over = max(box) > _LARGEST_SHARE
            self._boxes += 1
            self._over += is_over
            self._shares = self._thousandths = False
            if is_over:
                self._first = self._first or box

    @property
    def fault(self) -> str:
        """Why the boxes are not in the unit in which they are read; empty if they may be."""
        if self._boxes < 2:
            return ""
        said = f"[{', '.join(f'{edge:g}' for edge in self._first)}]"
        if self._over >= _MOST_LEAVE * self._boxes:
            return (
                f"{self._over} of {self._boxes} boxes, as {said}, are no shares of the picture "
                "from 0 to 1"
            )
        if self._shares:
            return f"its boxes, as {said}, are shares of the picture from 0 to 1, not pixels"
        if self._thousandths and self._leaving >= max(_FEWEST, _MOST_LEAVE * self._boxes):
            return (
                f"{self._leaving} of {self._boxes} boxes leave their picture; all of them, as "
                f"{said}, are thousandths of its sides, not pixels"
            )
        return ""
