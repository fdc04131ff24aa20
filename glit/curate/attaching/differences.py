"""Decide whether two pictures differ only as a new encoding, another size or other tones
cause.

Pictures are compared by the means of cells at all places. The limits are above what such changes
caused in photographs and drawn scenes, and below what near twins had: ``docs/decisions/attach.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glit.curate.attaching.features import require_opencv
from glit.curate.attaching.tones import LUMA, MOST_GAIN

if TYPE_CHECKING:
    from jaxtyping import Float32

_LOST = 3.0
"""How much more edges count where contrast cut off detail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    """Limits of the differences between the cells of two pictures."""

    side: int
    """Side of a cell in pixels; larger for a coarse picture."""
    even: float
    """Grey levels, where the picture is even."""
    edges: float = 0.0
    """Grey levels more for each grey level by which neighbouring pixels differ on average: edges
    move and blur when a picture is resized and encoded."""


_BRIGHTNESS = _Limit(side=20, even=4.0, edges=0.15)
"""For the mean brightness."""
_PIXELS = _Limit(side=12, even=10.5, edges=1.75)
"""For the mean difference of the pixels."""
_COLOUR = _Limit(side=32, even=9.0, edges=0.5)
"""For the mean of red and blue without brightness; files keep colour at half the size."""
_CAST = _Limit(side=32, even=8.5)
"""For the mean colour before tones are fitted: other hues make another picture."""
_GRAIN_SIDE = 20
"""Side in pixels of the cells in which the detail of two pictures is correlated."""
_GRAIN_NOISE = 20.0
"""Variance in squared grey levels that encoding adds to a cell."""
_MOST_UNLIKE = 0.32
"""Largest distance of a cell's correlation from 1."""
_USUAL_NOISE, _CLEAN = 2.4, 0.7
"""Median difference in grey levels from which the limits are what they say, and their least share
in a fine picture: where all else hardly differs, no encoding explains that one part does."""


def apart(
    contrasted: Float32[np.ndarray, "H W 3"], fitted: Float32[np.ndarray, "H W 3"],
    here: Float32[np.ndarray, "H W 3"], cut: Float32[np.ndarray, "H W"], *, unit: float,
) -> float:  # fmt: skip
    """Return the difference of the cell that differs most, as a share of its limit.

    Args:
        contrasted: the published pixels in the contrast of the found ones.
        fitted: the published pixels in their tones.
        here: the found pixels.
        cut: 1 where contrast cut off what is dark or bright, else 0.
        unit: side of a cell, 1 in a fine picture, more in a coarse one.
    """
    miss = fitted - here
    luma = miss @ LUMA
    # of both pictures the evener one: what only one of them shows excuses nothing
    edges = [_gradient(each @ LUMA) for each in (fitted, here)]
    colour = [miss[..., channel] - luma for channel in (0, 2)]
    # detail that was cut off before the picture was made smaller is lost in its means
    lost = [each * (1 + _LOST * cut) for each in edges]
    missed = np.abs(miss).mean(2)
    worst = max(
        _over(_BRIGHTNESS, [luma], lost, unit),
        _over(_PIXELS, [missed], edges, unit),
        _over(_COLOUR, colour, edges, unit),
        _over(_CAST, _cast(contrasted, here), edges, unit),
        _unlike(fitted @ LUMA, here @ LUMA, unit),
    )
    if unit > 1 or cut.any():  # of few pixels, or where some were cut off, less is known
        return worst
    noise = float(np.median(_cell_means(missed, min(_PIXELS.side, *missed.shape))))
    return worst / min(max(noise / _USUAL_NOISE, _CLEAN), 1)


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


def _cast(
    there: Float32[np.ndarray, "H W 3"], here: Float32[np.ndarray, "H W 3"]
) -> list[Float32[np.ndarray, "H W"]]:
    """Return by how many grey levels red, green and blue differ from grey in one picture more than
    in the other, once the picture as a whole is given more or less colour."""
    was, now = (each - (each @ LUMA)[..., None] for each in (there, here))
    scale = np.clip(float((was * now).sum()) / max(float((was**2).sum()), 1.0), 0, MOST_GAIN)
    miss = now - scale * was
    return [miss[..., channel] for channel in range(3)]
