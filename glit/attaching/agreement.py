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

_SAMPLED = 6_000
"""Pixels from which places and tones are computed."""
EVEN, _PADDING, _MARGIN = 12, 4, 3
"""Grey levels within which a border is of one colour, and their deviation in what is beside both;
pixels there that may be mixed."""
_BLUR = 1.0
_LEAST_SIDE = 32
"""Least side of what both show, in pixels; of coarse pictures more."""
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)
"""Weights of red, green and blue (ITU-R BT.601)."""
_THIRDS = np.full(3, 1 / 3, np.float32)
_REFINED, _HUBER, _FARTHEST = 4, 12.0, 3.0
"""Steps by pixels, the difference from which pixels count less, pixels a step."""
_FITTED = 6
"""Steps by which contrast is fitted."""
_RISEN, _CUT, _LOST = 1.1, 12.0, 3.0
"""Contrast that cuts off detail, grey levels from black or white at which it does, and how much
more edges count there."""
_GAINS, _LEAST_MIX = (0.35, 2.5), -0.8
"""Changes of contrast and of saturation that a picture may have gone through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    """How far the cells of a picture may differ."""

    side: int
    """Of a cell, in pixels; of a coarse picture more."""
    even: float
    """Grey levels, where the picture is even."""
    edges: float = 0.0
    """Grey levels more for each grey level by which neighbouring pixels differ on average: edges
    move and blur when a picture is resized and encoded."""


_BRIGHTNESS = _Limit(side=20, even=4.0, edges=0.15)
"""For the mean brightness."""
_PIXELS = _Limit(side=12, even=10.5, edges=1.75)
"""For the mean difference of the pixels."""
_COLOUR = _Limit(side=32, even=8.0, edges=0.4)
"""For the mean of red and blue without brightness; files keep colour at half the size."""
_CAST = _Limit(side=32, even=8.5)
"""For the mean colour before tones are fitted: other hues make another picture."""


_GRAIN_SIDE, _GRAIN_NOISE, _MOST_UNLIKE = 20, 20.0, 0.32
"""Side of the cells whose pixels are correlated, the variance that encoding adds, and how far from
1 the correlation may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How two pictures agree."""

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
    for _ in range(_REFINED):
        if (laid := overlay.laid(line)) is None:
            return None
        line = _refined(line, laid.fitted @ _LUMA, laid.here @ _LUMA, laid.corner)
    if (laid := overlay.laid(line, clipped=True)) is None:
        return None
    (sx, tx), (sy, ty) = line
    x0, y0, x1, y1 = laid.box
    if not _is_even_outside(undone, (sx * x0 + tx, sy * y0 + ty, sx * x1 + tx, sy * y1 + ty)):
        return None
    return Agreement(
        line=line,
        shown=float((x1 - x0) * (y1 - y0) / (published.shape[0] * published.shape[1])),
        apart=_apart(laid, overlay.unit),
        colours=laid.colours,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Laid:
    """What two pictures both show."""

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
        contrasted, cut = (
            _contrasted(there, here) if clipped else (there, np.zeros(there.shape[:2], np.float32))
        )
        if (toned := _toned(there, contrasted, here)) is None:
            return None
        fitted, colours = toned
        return _Laid(
            box=(x0, y0, x1, y1), corner=(left, top), contrasted=contrasted, cut=cut,
            fitted=fitted, here=here, colours=colours,
        )  # fmt: skip

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


def _apart(laid: _Laid, unit: float) -> float:
    """Return the difference of the cell that differs most, as a share of its limit.

    Args:
        laid: what both pictures show.
        unit: by how much cells are larger than in a fine picture.
    """
    miss = laid.fitted - laid.here
    luma = miss @ _LUMA
    # of both pictures the evener one: what only one of them shows excuses nothing
    edges = [_gradient(each @ _LUMA) for each in (laid.fitted, laid.here)]
    colour = [miss[..., channel] - luma for channel in (0, 2)]
    # detail that was cut off before the picture was made smaller is lost in its means
    lost = [each * (1 + _LOST * laid.cut) for each in edges]
    return max(
        _over(_BRIGHTNESS, [luma], lost, unit),
        _over(_PIXELS, [np.abs(miss) @ _THIRDS], edges, unit),
        _over(_COLOUR, colour, edges, unit),
        _over(_CAST, _cast(laid.contrasted, laid.here), edges, unit),
        _unlike(laid.fitted @ _LUMA, laid.here @ _LUMA, unit),
    )


def _unlike(
    fitted: Float32[np.ndarray, "H W"], here: Float32[np.ndarray, "H W"], unit: float
) -> float:
    """Return how far the cell whose pixels correlate least is from 1, as a share of the limit:
    grain may be lost in a file, but not become another."""
    side = min(round(_GRAIN_SIDE * unit), *here.shape)
    one, two = _cell_means(fitted, side), _cell_means(here, side)
    both = _cell_means(fitted * here, side) - one * two
    own = (_cell_means(fitted**2, side) - one**2) * (_cell_means(here**2, side) - two**2)
    alike = (both + _GRAIN_NOISE) / (np.sqrt(np.maximum(own, 0)) + _GRAIN_NOISE)
    return float((1 - alike).max() / _MOST_UNLIKE)


def _gradient(grey: Float32[np.ndarray, "H W"]) -> Float32[np.ndarray, "H W"]:
    down, across = np.gradient(grey)
    return np.hypot(down, across)


def _over(
    limit: _Limit, misses: list[Float32[np.ndarray, "H W"]],
    edges: list[Float32[np.ndarray, "H W"]], unit: float,
) -> float:  # fmt: skip
    """Return the greatest mean of a cell, as a share of the limit there."""
    side = min(round(limit.side * unit), *misses[0].shape)
    allowed = limit.even
    if limit.edges:
        allowed += limit.edges * np.minimum(*(_cell_means(each, side) for each in edges))
    return max(float((np.abs(_cell_means(miss, side)) / allowed).max()) for miss in misses)


def _cell_means(values: Float32[np.ndarray, "H W"], side: int) -> Float32[np.ndarray, "R C"]:
    """Means of the squares of a side at all places."""
    means = require_opencv().boxFilter(values, -1, (side, side), anchor=(0, 0))
    return means[: values.shape[0] - side + 1, : values.shape[1] - side + 1]


def _toned(
    there: Float32[np.ndarray, "H W 3"],
    contrasted: Float32[np.ndarray, "H W 3"],
    here: Float32[np.ndarray, "H W 3"],
) -> tuple[Float32[np.ndarray, "H W 3"], str] | None:
    """Return the published pixels in the tones of the found ones: brighter, darker, with more or
    less contrast or colour; None if no such change explains them."""
    step = max(1, there.size // 3 // _SAMPLED)
    before, some, wanted = (each.reshape(-1, 3)[::step] for each in (there, contrasted, here))
    mixing, shift = np.empty((3, 3), np.float32), np.empty(3, np.float32)
    for channel in range(3):
        columns = np.stack([some[:, channel], some @ _LUMA, np.ones(len(some), np.float32)], 1)
        these = wanted[:, channel]
        inside = (these > 5) & (these < 250)  # what is too dark or too bright tells nothing
        if inside.mean() < 0.2:
            inside[:] = True
        values = _solve(columns[inside], these[inside])
        miss = np.abs((columns @ values).clip(0, 255) - these)
        held = inside & (miss <= np.quantile(miss, 0.8) + 1)  # a part that differs bends no other
        own, grey, shift[channel] = _solve(columns[held], these[held])
        if not _GAINS[0] <= own + grey <= _GAINS[1] or grey < _LEAST_MIX:
            return None
        mixing[channel] = grey * _LUMA
        mixing[channel, channel] += own
    fitted = (contrasted @ mixing.T + shift).clip(0, 255)
    if _is_grey(wanted) and not _is_grey(before):
        return fitted, "grey"
    moved = np.abs(fitted.reshape(-1, 3)[::step] - before).mean()
    return fitted, "same" if moved < 4 else "changed"


def _contrasted(
    there: Float32[np.ndarray, "H W 3"], here: Float32[np.ndarray, "H W 3"]
) -> tuple[Float32[np.ndarray, "H W 3"], Float32[np.ndarray, "H W"]]:
    """Return the published pixels with the contrast, the brightness and the saturation of the found
    ones, one change of each for all pixels, clipped as programs do (Gauss-Newton); and 1 where
    pixels are clipped, else 0."""
    step = max(1, there.size // 3 // _SAMPLED)
    some, wanted = (each.reshape(-1, 3)[::step] for each in (there, here))
    low, high = (np.quantile(each @ _LUMA, (0.25, 0.75)) for each in (some, wanted))
    gain = np.clip((high[1] - high[0]) / max(low[1] - low[0], 1), *_GAINS)
    tones = np.array([gain, high.mean() - gain * low.mean(), 1.0])
    for _ in range(_FITTED):
        values, light, made = _made(some, tones)
        held = (values > 0) & (values < 255)
        slopes = np.stack([some * held, held.astype(np.float32)])
        slopes = tones[2] * slopes + (1 - tones[2]) * (slopes @ _LUMA)[..., None]
        columns = np.stack([*slopes, values.clip(0, 255) - light], -1)
        miss = wanted - made
        weights = 1 / np.maximum(np.abs(miss) / _HUBER, 1) * ((made > 0) & (made < 255))
        weighted = (columns * weights[..., None]).reshape(-1, 3)
        square = columns.reshape(-1, 3).T @ weighted + np.eye(3) * 1e-3
        tones = tones + np.linalg.solve(square, weighted.T @ miss.ravel())
        tones = tones.clip((_GAINS[0], -255, 0), (_GAINS[1], 255, _GAINS[1]))
    cut = np.zeros(there.shape[:2], np.float32)
    if tones[0] < _RISEN:
        return there, cut
    values, _, made = _made(there, tones.astype(np.float32))
    cut[((values < _CUT) | (values > 255 - _CUT)).any(2)] = 1
    return made, cut


def _made(
    pixels: Float32[np.ndarray, "*N 3"], tones: np.ndarray
) -> tuple[np.ndarray, np.ndarray, Float32[np.ndarray, "*N 3"]]:
    """Return pixels of another contrast and brightness, their brightness once they are clipped, and
    those of another saturation."""
    values = tones[0] * pixels + tones[1]
    clipped = values.clip(0, 255)
    light = (clipped @ _LUMA)[..., None]
    return values, light, (tones[2] * clipped + (1 - tones[2]) * light).clip(0, 255)


def _is_grey(colours: Float32[np.ndarray, "N 3"]) -> bool:
    return bool(np.abs(colours - (colours @ _THIRDS)[:, None]).mean() < 1.5)


def _cast(
    there: Float32[np.ndarray, "H W 3"], here: Float32[np.ndarray, "H W 3"]
) -> list[Float32[np.ndarray, "H W"]]:
    """Return by how many grey levels red, green and blue differ from grey in one picture more than
    in the other, once the picture as a whole is given more or less colour."""
    was, now = (each - (each @ _LUMA)[..., None] for each in (there, here))
    scale = np.clip(float((was * now).sum()) / max(float((was**2).sum()), 1.0), 0, _GAINS[1])
    miss = now - scale * was
    return [miss[..., channel] for channel in range(3)]


def _solve(columns: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Least squares, drawn a little towards no change."""
    ridge = np.diag([1.0, 1.0, 0.01]) * len(columns)
    start = np.array([1.0, 0.0, 0.0])
    square, both = columns.T @ columns, columns.T @ wanted
    return np.linalg.solve(square + ridge, both + ridge @ start).astype(np.float32)
