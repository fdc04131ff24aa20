"""The grid of FLISM: four quadrants and a centre region (FAST-GOAL, section III-A)."""

from __future__ import annotations

from glit.data.geometry import grid_boxes
from glit.data.records import Box, Region
from glit.models.backends.base import PLAIN_BYTES, Backend


class Grid:
    """A :class:`glit.models.backends.protocols.RegionLayout` of five regions."""

    def regions(self, *, width: int, height: int) -> list[Region]:
        """Four quadrants and the centre, with a score of 1."""
        return [
            Region(
                box=Box(x0=x0, y0=y0, x1=x1, y1=y1),
                score=1.0,
                label=name,
                source="centre" if name == "centre" else "quadrant",
            )
            for name, (x0, y0, x1, y1) in grid_boxes(width=width, height=height).items()
        ]


GRID = Backend(
    make=lambda *_: Grid(), reads="nothing", needs_model=False, process_bytes=PLAIN_BYTES
)
