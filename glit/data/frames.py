"""Move boxes and masks from the picture that a file states to the upright image.

Annotations state the size of the picture that their boxes are in. It may be another than that of
the image: the picture was resized since, or its EXIF orientation was not applied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool

XYXY = tuple[float, float, float, float]
_ROUNDING_PX = 0.5
"""Pixels by which any box may leave the image; published ones are rounded."""
TURNED = (5, 6, 7, 8)
"""EXIF orientations that swap width and height."""

CHANGES = {
    "scaled": "the picture that the annotations state has another size",
    "turned": "the annotations state the picture before its EXIF orientation; of pictures that are "
    "only mirrored or upside down no size tells it, and their boxes stay",
}
"""Changes of boxes whose picture is not the upright image, each with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The stated picture and the upright image."""

    stated: tuple[float, float]
    """Width and height."""
    size: tuple[float, float]
    """Width and height of the upright image."""
    orientation: int = 1
    """EXIF orientation by which the boxes have to be turned; 1 for none."""

    @property
    def change(self) -> str:
        """``turned``, ``scaled``, or empty if boxes stay as they are."""
        if self.orientation in TURNED:
            return "turned"
        near = all(abs(a - b) <= 1 for a, b in zip(self.stated, self.size, strict=True))
        return "" if near else "scaled"

    def box(self, box: Sequence[float]) -> XYXY:
        """A box, xyxy in pixels, in the upright image.

        >>> Frame(stated=(400, 300), size=(300, 400), orientation=6).box((20, 40, 80, 100))
        (200.0, 20.0, 260.0, 80.0)
        """
        x0, y0, x1, y1 = map(float, box)
        if not self.change:
            return x0, y0, x1, y1
        width, height = self.stated
        if self.orientation in TURNED:
            x0, y0, x1, y1, width, height = y0, x0, y1, x1, height, width
        if self.orientation in (2, 3, 6, 7):
            x0, x1 = width - x1, width - x0
        if self.orientation in (3, 4, 7, 8):
            y0, y1 = height - y1, height - y0
        across, down = self.size
        return (x0 * across / width, y0 * down / height, x1 * across / width, y1 * down / height)

    @property
    def slack(self) -> float:
        """Pixels of the image by which a box may leave it through rounding."""
        one = max(abs(a - b) for a, b in zip(self.stated, self.size, strict=True))
        if self.change:  # a pixel of the picture that the boxes are in
            one = max(max(self.size) / max(self.stated), 1.0)
        return max(one, _ROUNDING_PX)

    @property
    def rounds(self) -> bool:
        """True if the stated size is another than the image's, so that boxes may leave it."""
        return self.stated != self.size

    def cut(self, box: XYXY) -> XYXY:
        """A box of the upright image, cut at its edges."""
        width, height = self.size
        x0, x1 = (min(max(edge, 0.0), width) for edge in (box[0], box[2]))
        y0, y1 = (min(max(edge, 0.0), height) for edge in (box[1], box[3]))
        return x0, y0, x1, y1

    def mask(self, mask: Bool[np.ndarray, "h w"]) -> Bool[np.ndarray, "h2 w2"]:
        """A mask turned upright; its size is left."""
        if self.orientation in TURNED:
            mask = mask.T
        if self.orientation in (2, 3, 6, 7):
            mask = mask[:, ::-1]
        if self.orientation in (3, 4, 7, 8):
            mask = mask[::-1]
        return mask


def upright_orientation() -> int:
    """EXIF orientation of an image without one."""
    return 1


def fit_frame(
    stated: Sequence[float],
    size: tuple[float, float],
    orientation: Callable[[], int] = upright_orientation,
) -> Frame:
    """Return how boxes of a picture of a stated size move to an image.

    Sizes that were rounded by a pixel count as equal. A stated size that is as near to the upright
    image as to the picture before its EXIF orientation means the upright one.

    Args:
        stated: width and height.
        size: width and height of the upright image.
        orientation: reads the EXIF orientation of its file; called only if the size differs.

    Raises:
        ValueError: the picture has another shape than the image.
    """
    width, height = size
    if tuple(stated) == (width, height):
        return Frame(stated=(width, height), size=size)
    given = checked_size(stated)
    apart, swapped = _apart(given, size), _apart(given, (height, width))
    if swapped < apart and swapped <= _rounding(given, size) and (turn := orientation()) in TURNED:
        return Frame(stated=given, size=size, orientation=turn)
    if apart <= _rounding(given, size):
        return Frame(stated=given, size=size)
    hint = ""
    if swapped <= _rounding(given, size):
        hint = "; its file has no EXIF orientation that swaps width and height"
    raise ValueError(
        f"made on a picture of {given[0]:g}x{given[1]:g} pixels, the image has "
        f"{width:g}x{height:g}{hint}"
    )


def checked_size(stated: Sequence[Any]) -> tuple[float, float]:
    """Width and height as numbers.

    Raises:
        ValueError: they are not two positive numbers.
    """
    good = len(stated) == 2 and all(
        isinstance(each, int | float) and not isinstance(each, bool) and 0 < each < 1e9
        for each in stated
    )
    if not good:
        raise ValueError(f"states a size of {stated!r:.60}, want two positive numbers of pixels")
    return float(stated[0]), float(stated[1])


def stated_size(entry: dict[str, Any], *keys: str) -> tuple[Any, Any] | None:
    """The width and height that an entry states; None for one that states none."""
    width, height = (entry.get(key) for key in keys or ("width", "height"))
    if width is None and height is None:
        return None
    return width, height


def xywh_corners(box: Sequence[float]) -> XYXY:
    """The two corners of a box that is given as a corner and a size.

    Raises:
        ValueError: it has not four numbers.
    """
    x, y, width, height = box
    return x, y, x + width, y + height


def _apart(a: tuple[float, float], b: tuple[float, float]) -> float:
    """0 for two sizes of one shape."""
    return abs(a[0] * b[1] - a[1] * b[0])


def _rounding(a: tuple[float, float], b: tuple[float, float]) -> float:
    """The most that :func:`_apart` is for two sizes of one shape, each rounded by a pixel."""
    return max(math.fsum(a), math.fsum(b))
