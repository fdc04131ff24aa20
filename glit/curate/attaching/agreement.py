"""Decide whether the pixels of two pictures agree, one laid upon the other.

The place is refined by the pixels (Gauss-Newton, Lucas and Kanade 1981). One change of tones for
the whole picture is allowed; then no part of it may differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glit.curate.attaching.differences import apart
from glit.curate.attaching.features import require_opencv
from glit.curate.attaching.matches import Line
from glit.curate.attaching.tones import LUMA, contrasted, toned

if TYPE_CHECKING:
    from jaxtyping import Float32

    from glit.images import Pixels

_SAMPLED = 6_000
"""Pixels from which places are computed."""
EVEN, _PADDING, _MARGIN = 12, 4, 3
"""Grey levels within which a border is of one colour, and their deviation in what is beside both;
pixels there that may be mixed."""
_BLUR = 1.0
_LEAST_SIDE = 32
"""Least side of what both show, in pixels; of coarse pictures more."""
_LEAST_LIKE = 0.5
"""Likeness of two pictures below which they are not compared."""
_REFINED, _MOST_REFINED, _HUBER, _FARTHEST = 4, 12, 12.0, 3.0
"""Steps by pixels at least and at most, the difference from which pixels count less, pixels a
step."""
_SETTLED = 0.1
"""Pixels by which the last step moves a corner at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The agreement of two pictures."""

    line: Line
    """The refined place."""
    shown: float
    """Share of the first picture that the second one shows, 0 to 1."""
    apart: float
    """Difference of the cell that differs most, as a share of the limit; above 1 they are two
    pictures."""
    colours: str
    """``same``, ``changed`` or ``grey``."""


def agreement(published: Pixels, undone: Pixels, line: Line, coarse: float) -> Agreement | None:
    """Lay a picture upon another one and compare what both show.

    Args:
        published: the one.
        undone: the other, neither turned nor mirrored.
        line: its place.
        coarse: side of a pixel of the coarser one's file, in pixels of ``published``.

    Returns:
        How they agree; None if they share too little, their tones are others, or the second one has
        something beside what both show.
    """
    overlay = _Overlay(published, undone, line, coarse)
    for step in range(_MOST_REFINED):
        if (laid := overlay.laid(line)) is None:
            return None
        there, here = laid.fitted @ LUMA, laid.here @ LUMA
        if step == 0 and likeness(there, here) < _LEAST_LIKE:
            return None
        before, line = line, _refined(line, there, here, laid.corner)
        if step + 1 >= _REFINED and _farthest(before, line, published.shape) < _SETTLED:
            break
    if (laid := overlay.laid(line, clipped=True)) is None:
        return None
    (sx, tx), (sy, ty) = line
    x0, y0, x1, y1 = laid.box
    if not _is_even_outside(undone, (sx * x0 + tx, sy * y0 + ty, sx * x1 + tx, sy * y1 + ty)):
        return None
    return Agreement(
        line=line,
        shown=float((x1 - x0) * (y1 - y0) / (published.shape[0] * published.shape[1])),
        apart=apart(laid.contrasted, laid.fitted, laid.here, laid.cut, unit=overlay.unit),
        colours=laid.colours,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Laid:
    """The part that two pictures share."""

    box: tuple[float, float, float, float]
    """Its corners in the first picture."""
    corner: tuple[int, int]
    """The first whole pixel in it."""
    contrasted: Float32[np.ndarray, "H W 3"]
    """The first picture in the contrast of the second."""
    cut: Float32[np.ndarray, "H W"]
    """1 where that contrast cuts off what is dark or bright, else 0."""
    fitted: Float32[np.ndarray, "H W 3"]
    """It in the tones of the second."""
    here: Float32[np.ndarray, "H W 3"]
    """The second picture."""
    colours: str


class _Overlay:
    """A picture to be laid upon another at places that hardly differ."""

    def __init__(self, published: Pixels, undone: Pixels, line: Line, coarse: float) -> None:
        self._cv2 = require_opencv()
        most = max(line[0][0], line[1][0])
        self._height, self._width = published.shape[:2]
        self._size = undone.shape[1::-1]
        self._blur = max(_BLUR, coarse / 2)
        self._published = self._blurred(published)
        # no detail that the thumbnail cannot have
        self._source = self._cv2.GaussianBlur(undone, (0, 0), most / 2) if most > 1.2 else undone
        self.unit = max(1.0, coarse / 2)

    def laid(self, line: Line, *, clipped: bool = False) -> _Laid | None:
        """Return what both show; None if it is too little, or in other tones.

        Args:
            line: the place.
            clipped: whether to look for contrast that was clipped.
        """
        cv2 = self._cv2
        (sx, tx), (sy, ty) = line
        # of pixel centres
        matrix = np.array([[sx, 0, tx + sx / 2 - 0.5], [0, sy, ty + sy / 2 - 0.5]])
        warped = cv2.warpAffine(
            self._source, matrix, (self._width, self._height),
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, borderMode=cv2.BORDER_REPLICATE,
        )  # fmt: skip
        x0, x1 = max(0.0, -tx / sx), min(float(self._width), (self._size[0] - tx) / sx)
        y0, y1 = max(0.0, -ty / sy), min(float(self._height), (self._size[1] - ty) / sy)
        left, top, right, bottom = int(np.ceil(x0)), int(np.ceil(y0)), int(x1), int(y1)
        # pixels next to padding are mixed with it
        left += _MARGIN * (tx > 1)
        top += _MARGIN * (ty > 1)
        right -= _MARGIN * (self._size[0] - sx * self._width - tx > 1)
        bottom -= _MARGIN * (self._size[1] - sy * self._height - ty > 1)
        if min(right - left, bottom - top) < _LEAST_SIDE * self.unit:
            return None
        there = self._published[top:bottom, left:right]
        here = self._blurred(warped)[top:bottom, left:right]
        risen, cut = contrasted(there, here) if clipped else (there, np.zeros_like(here[..., 0]))
        if (made := toned(there, risen, here)) is None:
            return None
        fitted, colours = made
        return _Laid(
            box=(x0, y0, x1, y1), corner=(left, top), contrasted=risen, cut=cut,
            fitted=fitted, here=here, colours=colours,
        )  # fmt: skip

    def _blurred(self, pixels: Pixels) -> Float32[np.ndarray, "H W 3"]:
        return self._cv2.GaussianBlur(pixels, (0, 0), self._blur).astype(np.float32)


def likeness(one: Float32[np.ndarray, "H W"], two: Float32[np.ndarray, "h w"]) -> float:
    """Return the correlation of two grey pictures at 16 x 16 pixels, -1 to 1."""
    cv2 = require_opencv()
    one, two = (
        cv2.resize(np.ascontiguousarray(each), (16, 16), interpolation=cv2.INTER_AREA)
        for each in (one, two)
    )
    one, two = one - one.mean(), two - two.mean()
    return float((one * two).sum() / max(np.sqrt((one**2).sum() * (two**2).sum()), 1e-6))


def _is_even_outside(pixels: Pixels, box: tuple[float, float, float, float]) -> bool:
    """Return whether each strip of a picture outside a box is of one colour."""
    height, width = pixels.shape[:2]
    left, top = int(box[0]) - _MARGIN, int(box[1]) - _MARGIN
    right, bottom = int(np.ceil(box[2])) + _MARGIN, int(np.ceil(box[3])) + _MARGIN
    strips = (
        pixels[: max(top, 0)], pixels[min(bottom, height) :],
        pixels[:, : max(left, 0)], pixels[:, min(right, width) :],
    )  # fmt: skip
    return all(strip.std((0, 1)).max() <= _PADDING for strip in strips if strip.size)


def _farthest(one: Line, two: Line, shape: tuple[int, ...]) -> float:
    """Return by how many pixels of the found picture a corner moves between two places."""
    return max(
        abs((a - b) * end + shift - other)
        for (a, shift), (b, other), side in zip(one, two, (shape[1], shape[0]), strict=True)
        for end in (0, side)
    )


def _refined(
    line: Line, wanted: Float32[np.ndarray, "H W"], here: Float32[np.ndarray, "H W"],
    corner: tuple[int, int],
) -> Line:  # fmt: skip
    """Return the place after one Gauss-Newton step on the differences of the pixels."""
    (sx, tx), (sy, ty) = line
    down, across = np.gradient(here)
    y, x = np.mgrid[: here.shape[0], : here.shape[1]] + 0.5
    x, y = x + corner[0], y + corner[1]
    # a gradient a pixel of the thumbnail; the line is in pixels of the found picture
    columns = np.stack([across * x / sx, across / sx, down * y / sy, down / sy], axis=-1)
    stride = max(1, here.size // _SAMPLED)
    columns = columns.reshape(-1, 4)[::stride]
    miss = (wanted - here).ravel()[::stride]
    weights = 1 / np.maximum(np.abs(miss) / _HUBER, 1)
    weighted = columns * weights[:, None]
    square = columns.T @ weighted
    square += np.diag(np.diag(square)) * 1e-4
    try:
        step = np.linalg.solve(square, weighted.T @ miss)
    except np.linalg.LinAlgError:
        return line
    middle = np.array([x.mean(), y.mean()])
    moved = np.abs([step[0] * middle[0] + step[1], step[2] * middle[1] + step[3]])
    if not np.isfinite(step).all() or moved.max() > _FARTHEST * max(sx, sy, 1):
        return line
    return (sx + float(step[0]), tx + float(step[1])), (sy + float(step[2]), ty + float(step[3]))
