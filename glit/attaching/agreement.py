"""Whether the pixels of two pictures agree, one laid upon the other.

The place is refined by the pixels (Gauss-Newton, Lucas and Kanade 1981). One change of tones for
the whole picture is allowed; then no part of it may differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glit.attaching.features import require_opencv
from glit.attaching.matches import Line

if TYPE_CHECKING:
    from jaxtyping import Float32

    from glit.images import Pixels

_SAMPLED = 15_000
"""Pixels from which places and tones are computed."""
EVEN, _PADDING, _MARGIN = 12, 4, 3
"""Grey levels within which a border is of one colour, and their deviation in what is beside both;
pixels there that may be mixed."""
_BLUR = 1.0
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)
"""Weights of red, green and blue (ITU-R BT.601)."""
_REFINED, _HUBER, _FARTHEST = 4, 12.0, 3.0
"""Steps by pixels, the difference from which pixels count less, pixels a step."""
_CELL, _CELL_PIXELS = 16, 8
"""Least side of the cells that are compared, in pixels as compared and of the coarser file."""
_GAINS, _LEAST_MIX, _MOST_CAST = (0.35, 2.5), -0.8, 15.0
"""Changes of contrast, of saturation, and of mean colour in grey levels, that a picture may have
gone through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How two pictures agree."""

    line: Line
    """The refined place."""
    shown: float
    """Share of the first picture that the second one shows, 0 to 1."""
    apart: float
    """Difference of the means of the cell that differs most, in brightness or in colour."""
    rough: float
    """Mean difference of the pixels of the cell in which it is greatest, in grey levels."""
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
    for _ in range(_REFINED):
        if (laid := overlay.laid(line)) is None:
            return None
        line = _refined(line, laid.fitted.mean(2), laid.here.mean(2), laid.corner)
    if (laid := overlay.laid(line)) is None:
        return None
    (sx, tx), (sy, ty) = line
    x0, y0, x1, y1 = laid.box
    if not _is_even_outside(undone, (sx * x0 + tx, sy * y0 + ty, sx * x1 + tx, sy * y1 + ty)):
        return None
    miss = laid.fitted - laid.here
    return Agreement(
        line=line,
        shown=float((x1 - x0) * (y1 - y0) / (published.shape[0] * published.shape[1])),
        apart=_apart(miss, overlay.cell),
        rough=float(_cell_means(np.abs(miss).mean(2), overlay.cell).max()),
        colours=laid.colours,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Laid:
    """What two pictures both show."""

    box: tuple[float, float, float, float]
    """Its corners in the first picture."""
    corner: tuple[int, int]
    """The first whole pixel in it."""
    fitted: Float32[np.ndarray, "H W 3"]
    """The first picture in the tones of the second."""
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
        self.cell = int(max(_CELL, _CELL_PIXELS * coarse)) // 2 * 2

    def laid(self, line: Line) -> _Laid | None:
        """Return what both show; None if it is too little, or in other tones."""
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
        if right - left < 2 * self.cell or bottom - top < 2 * self.cell:
            return None
        there = self._published[top:bottom, left:right]
        here = self._blurred(warped)[top:bottom, left:right]
        if (toned := _toned(there, here, self.cell)) is None:
            return None
        fitted, colours = toned
        return _Laid(
            box=(x0, y0, x1, y1), corner=(left, top), fitted=fitted, here=here, colours=colours
        )

    def _blurred(self, pixels: Pixels) -> Float32[np.ndarray, "H W 3"]:
        return self._cv2.GaussianBlur(pixels, (0, 0), self._blur).astype(np.float32)


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


def _apart(miss: Float32[np.ndarray, "H W 3"], cell: int) -> float:
    """The greatest difference in brightness of a cell, or in colour of a cell of twice its side,
    as files keep colour at half the size."""
    luma = miss @ _LUMA
    colour = [_cell_means(miss[..., c] - luma, 2 * cell) for c in (0, 2)]
    return max(
        float(np.abs(each).max()) for each in (_cell_means(luma, cell), *colour) if each.size
    )


def _cell_means(values: Float32[np.ndarray, "H W"], cell: int) -> Float32[np.ndarray, "R C"]:
    """Means of cells that overlap by half."""
    half = cell // 2
    rows, columns = (side // half for side in values.shape)
    halves = values[: rows * half, : columns * half].reshape(rows, half, columns, half).mean((1, 3))
    down = halves[1:] + halves[:-1]
    return (down[:, 1:] + down[:, :-1]) / 4


def _toned(
    there: Float32[np.ndarray, "H W 3"], here: Float32[np.ndarray, "H W 3"], cell: int
) -> tuple[Float32[np.ndarray, "H W 3"], str] | None:
    """Return the published pixels in the tones of the found ones: brighter, darker, with more or
    less contrast or colour; None if no such change explains them."""
    grey = there @ _LUMA
    fitted = np.empty_like(there)
    gains, mixes = [], []
    step = max(1, grey.size // _SAMPLED)
    for channel in range(3):
        own, wanted = there[..., channel].ravel(), here[..., channel].ravel()
        columns = np.stack([own, grey.ravel(), np.ones_like(own)], axis=1)
        some, these = columns[::step], wanted[::step]
        inside = (these > 5) & (these < 250)  # what is too dark or too bright tells nothing
        if inside.mean() < 0.2:
            inside[:] = True
        values = _solve(some[inside], these[inside])
        miss = np.abs((some @ values).clip(0, 255) - these)
        held = inside & (miss <= np.quantile(miss, 0.8) + 1)  # a part that differs bends no other
        values = _solve(some[held], these[held])
        fitted[..., channel] = (columns @ values).reshape(grey.shape)
        gains.append(values[0] + values[1])
        mixes.append(values[1])
    if min(gains) < _GAINS[0] or max(gains) > _GAINS[1] or min(mixes) < _LEAST_MIX:
        return None
    if _cast(there, here, cell) > _MOST_CAST:
        return None
    fitted = fitted.clip(0, 255)
    is_grey = np.abs(here - here.mean(2, keepdims=True)).mean() < 1.5
    was_grey = np.abs(there - there.mean(2, keepdims=True)).mean() < 1.5
    if is_grey and not was_grey:
        return fitted, "grey"
    return fitted, "same" if np.abs(fitted - there).mean() < 4 else "changed"


def _cast(
    there: Float32[np.ndarray, "H W 3"], here: Float32[np.ndarray, "H W 3"], cell: int
) -> float:
    """Return by how many grey levels a cell's mean colour differs at most, once the picture as a
    whole is given more or less colour."""
    was, now = (each - (each @ _LUMA)[..., None] for each in (there, here))
    scale = np.clip(float((was * now).sum()) / max(float((was**2).sum()), 1.0), 0, _GAINS[1])
    miss = now - scale * was
    return max(float(np.abs(_cell_means(miss[..., c], 2 * cell)).max(initial=0)) for c in range(3))


def _solve(columns: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Least squares, drawn a little towards no change."""
    ridge = np.diag([1.0, 1.0, 0.01]) * len(columns)
    start = np.array([1.0, 0.0, 0.0])
    return np.linalg.solve(columns.T @ columns + ridge, columns.T @ wanted + ridge @ start)
