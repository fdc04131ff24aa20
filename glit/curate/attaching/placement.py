"""Locate a found picture in the one that was published: mirrored, turned, cut, padded, resized.

Sides stay upright or at right angles, so boxes stay boxes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Place of a found picture in the frame of the published one, in pixels of the latter.

    The found picture is undone first: turned back, then mirrored back.
    """

    mirrored: bool = False
    """Left and right are exchanged, before it was turned."""
    turned: int = 0
    """Degrees clockwise: 0, 90, 180 or 270."""
    left: float
    top: float
    right: float
    bottom: float

    @property
    def is_upright(self) -> bool:
        """True if the picture is neither mirrored nor turned."""
        return not self.mirrored and not self.turned

    def shows_all(self, width: int, height: int) -> bool:
        """Return whether all of a published picture of this size is shown."""
        return self.left <= 0 and self.top <= 0 and self.right >= width and self.bottom >= height

    def undone_size(self, width: int, height: int) -> tuple[int, int]:
        """Width and height of the found picture once it is undone."""
        return (height, width) if self.turned % 180 else (width, height)

    def scale(self, width: int, height: int) -> tuple[float, float]:
        """Pixels of the found picture, which has this size, a pixel of the published one."""
        across, down = self.undone_size(width, height)
        return across / (self.right - self.left), down / (self.bottom - self.top)

    def moved(
        self, boxes: Float[np.ndarray, "N 4"], width: int, height: int
    ) -> Float[np.ndarray, "N 4"]:
        """Return boxes [x0, y0, x1, y1] of the published picture in pixels of the found one.

        Args:
            boxes: in pixels; they may leave the found picture afterwards.
            width: of the found picture.
            height: of it.
        """
        across, down = self.undone_size(width, height)
        sx, sy = self.scale(width, height)
        x = (boxes[:, [0, 2]] - self.left) * sx
        y = (boxes[:, [1, 3]] - self.top) * sy
        if self.mirrored:
            x = across - x[:, ::-1]
        for _ in range(self.turned // 90):  # clockwise: (x, y) goes to (height - y, x)
            x, y = down - y[:, ::-1], x
            across, down = down, across
        return np.stack([x[:, 0], y[:, 0], x[:, 1], y[:, 1]], axis=1)

    def snapped(self, size: tuple[int, int], found: tuple[int, int], slack: float) -> Placement:
        """Return the placement that is exact where this one nearly is.

        Args:
            size: of the published picture.
            found: of the found one, undone.
            slack: pixels of the published picture by which a side may be off.
        """
        edges = (0.0, 0.0, float(size[0]), float(size[1]))
        sides = (self.left, self.top, self.right, self.bottom)
        if all(abs(a - b) <= slack for a, b in zip(sides, edges, strict=True)):
            return replace(self, left=0.0, top=0.0, right=edges[2], bottom=edges[3])
        wide, tall = self.right - self.left, self.bottom - self.top
        if abs(wide - found[0]) <= slack and abs(tall - found[1]) <= slack:  # cut, not resized
            left, top = round(self.left), round(self.top)
            if abs(left - self.left) <= 0.5 and abs(top - self.top) <= 0.5:
                return replace(
                    self, left=float(left), top=float(top),
                    right=float(left + found[0]), bottom=float(top + found[1]),
                )  # fmt: skip
        return self


def undone(pixels: np.ndarray, *, mirrored: bool, turned: int) -> np.ndarray:
    """Return a found picture turned back, then mirrored back.

    Args:
        pixels: rows and columns, of any number of channels.
        mirrored: as of :class:`Placement`.
        turned: as of :class:`Placement`.
    """
    upright = np.rot90(pixels, turned // 90)  # counter-clockwise
    return np.ascontiguousarray(upright[:, ::-1] if mirrored else upright)
