"""Decide whether two pictures differ only as a new encoding, another size or other tones
cause.

Pictures are compared by the means of cells at all places. The limits are above what such changes
caused in photographs and drawn scenes, and below what near twins had: ``docs/decisions/attach.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glit.curate.attaching.picture import require_opencv

if TYPE_CHECKING:
    from jaxtyping import Float32

LUMA = np.array([0.299, 0.587, 0.114], np.float32)
"""Weights of red, green and blue in the brightness of a pixel (luma of ITU-R BT.601)."""
_BRIGHTNESS_SIDE, _BRIGHTNESS, _BRIGHTNESS_EDGES = 20, 4.0, 0.15
"""Side in pixels of the cells whose mean brightness is compared, larger for a coarse picture; limit
in grey levels; and grey levels more for each by which neighbouring pixels differ on average: edges
move and blur when a picture is resized and encoded."""
_PIXELS_SIDE, _PIXELS, _PIXELS_EDGES = 12, 10.5, 1.75
"""The same for the mean difference of the pixels."""
_COLOUR_SIDE, _COLOUR, _COLOUR_EDGES, _MOST_COLOUR = 32, 7.0, 0.5, 8.5
"""The same for the mean of red, green and blue without brightness, as files keep colour at half the
size; and the largest limit: other hues make another picture."""
_GRAIN_SIDE = 20
"""Side in pixels of the cells in which the detail of two pictures is correlated."""
_GRAIN_NOISE = 20.0
"""Variance in squared grey levels that encoding adds to a cell."""
_MOST_UNLIKE = 0.32
"""Largest distance of a cell's correlation from 1."""
_USUAL_NOISE, _CLEAN = 2.4, 0.7
"""Median difference in grey levels from which the limits are what they say, and their least share
in a fine picture: where all else hardly differs, no encoding explains that one part does."""
_LEAST_GAIN, _MOST_GAIN = 0.35, 2.5
"""Changes of contrast, and of saturation, that a picture may have gone through."""
_SAMPLED = 6_000
"""Number of pixels to which a change of tones is fitted."""
_HELD, _FITS = 0.8, 3
"""Share of the pixels that a change of tones must explain, and fits to them."""
_LEAST_GAINED = 0.25
"""Grey levels by which a change of tones has to explain the pixels better than none."""
_RISEN, _CUT, _LOST = 1.1, 12.0, 3.0
"""Contrast that cuts off detail, grey levels from black or white at which it does, and how much
more edges count there."""
_GREY, _SAME = 1.5, 4.0
"""Colour below which a picture is grey, and mean change below which its tones are the same, in grey
levels."""


def toned(
    there: Float32[np.ndarray, "H W 3"], here: Float32[np.ndarray, "H W 3"]
) -> tuple[Float32[np.ndarray, "H W 3"], Float32[np.ndarray, "H W"], str] | None:
    """Return the published pixels in the tones of the found ones; 1 where more contrast cut off
    what is dark or bright, else 0; and ``same``, ``changed`` or ``grey``. None if no change of
    contrast, brightness and saturation explains the found ones.

    One change of all pixels is fitted by least squares: it can hide no part that differs.

    Args:
        there: the published pixels.
        here: the found ones.
    """
    step = max(1, there.size // 3 // _SAMPLED)
    some, wanted = (each.reshape(-1, 3)[::step] for each in (there, here))
    is_grey = _colour(wanted) < _GREY and _colour(some) > max(_GREY, 2 * _colour(wanted))
    if is_grey:
        there = np.repeat((there @ LUMA)[..., None], 3, axis=2)
        some = there.reshape(-1, 3)[::step]
    # without colour the two columns are one
    light = np.repeat((some @ LUMA)[:, None], 3, axis=1) * (_colour(some) >= _GREY)
    columns = np.stack([some, light, np.ones_like(some)], axis=-1)
    inside = (wanted > 5) & (wanted < 250)  # what is too dark or too bright tells nothing
    if inside.mean() < 0.2:
        inside[:] = True
    held, own, gain, shift = inside, 1.0, 1.0, 0.0
    for _ in range(_FITS):
        own, mixed, shift = map(float, np.linalg.lstsq(columns[held], wanted[held], rcond=None)[0])
        gain, own = own + mixed, max(own, 0.0)
        if not _LEAST_GAIN <= gain <= _MOST_GAIN or own > _MOST_GAIN:
            return None
        values = gain * some + shift
        able = inside & ((values > 0) & (values < 255)).all(1, keepdims=True)
        able = able if able.mean() > 0.2 else inside
        miss = np.abs(columns @ (own, gain - own, shift) - wanted)
        held = able & (miss <= np.quantile(miss[able], _HELD) + 1)
    fitted = _clipped(there, own, gain, shift)
    values = gain * there + shift
    is_cut = ((values < _CUT) | (values > 255 - _CUT)).any(2) & (gain > _RISEN)
    cut = np.asarray(is_cut, np.float32)
    if is_grey:
        return fitted, cut, "grey"
    made = fitted.reshape(-1, 3)[::step]
    if np.abs(some - wanted).mean() - np.abs(made - wanted).mean() < _LEAST_GAINED:
        return there, np.zeros_like(cut), "same"
    return fitted, cut, "same" if np.abs(made - some).mean() < _SAME else "changed"


def _clipped(
    pixels: Float32[np.ndarray, "*N 3"], own: float, gain: float, shift: float
) -> Float32[np.ndarray, "*N 3"]:
    """Return pixels of another contrast and brightness, clipped, then of another saturation."""
    values = (gain * pixels + shift).clip(0, 255)
    grey = (values @ LUMA)[..., None]
    made = (grey + own / gain * (values - grey)).clip(0, 255)
    return np.asarray(made, np.float32)


def _colour(pixels: Float32[np.ndarray, "N 3"]) -> float:
    """Return the mean distance of red, green and blue from their mean, in grey levels."""
    return float(np.abs(pixels - pixels.mean(1, keepdims=True)).mean())


def difference(
    fitted: Float32[np.ndarray, "H W 3"], here: Float32[np.ndarray, "H W 3"],
    cut: Float32[np.ndarray, "H W"], *, unit: float,
) -> float:  # fmt: skip
    """Return the difference of the cell that differs most, as a share of its limit.

    Args:
        fitted: the published pixels in the tones of the found ones.
        here: the found pixels.
        cut: 1 where contrast cut off what is dark or bright, else 0.
        unit: side of a cell, 1 in a fine picture, more in a coarse one.
    """
    miss = fitted - here
    light, own_light = fitted @ LUMA, here @ LUMA
    # of both pictures the evener one: what only one of them shows excuses nothing
    edges = [np.hypot(*np.gradient(each)) for each in (light, own_light)]
    # detail that was cut off before the picture was made smaller is lost in its means
    lost = [each * (1 + _LOST * cut) for each in edges]
    missed = np.abs(miss).mean(2)

    def means(values: Float32[np.ndarray, "H W"], side: float) -> Float32[np.ndarray, "R C"]:
        return _cell_means(values, min(round(side * unit), *values.shape))

    def allowed(limit: float, more: float, side: int, edges: list) -> Float32[np.ndarray, "R C"]:
        return limit + more * np.minimum(*(means(each, side) for each in edges))

    brightness = np.abs(means(light - own_light, _BRIGHTNESS_SIDE))
    pixels = means(missed, _PIXELS_SIDE)
    colour = miss - (light - own_light)[..., None]
    colours = np.max([np.abs(means(colour[..., n], _COLOUR_SIDE)) for n in range(3)], axis=0)
    colour_limit = np.minimum(allowed(_COLOUR, _COLOUR_EDGES, _COLOUR_SIDE, edges), _MOST_COLOUR)
    worst = max(
        (brightness / allowed(_BRIGHTNESS, _BRIGHTNESS_EDGES, _BRIGHTNESS_SIDE, lost)).max(),
        (pixels / allowed(_PIXELS, _PIXELS_EDGES, _PIXELS_SIDE, edges)).max(),
        (colours / colour_limit).max(),
        _unlike(light, own_light, min(round(_GRAIN_SIDE * unit), *light.shape)),
    )
    if unit > 1 or cut.any():  # of few pixels, or where some were cut off, less is known
        return float(worst)
    noise = float(np.median(pixels))
    return float(worst / min(max(noise / _USUAL_NOISE, _CLEAN), 1))


def _unlike(
    fitted: Float32[np.ndarray, "H W"], here: Float32[np.ndarray, "H W"], side: int
) -> float:
    """Return how far the cell whose pixels correlate least is from 1, as a share of the limit:
    grain may be lost in a file, but not become another."""
    one, two = _cell_means(fitted, side), _cell_means(here, side)
    both = _cell_means(fitted * here, side) - one * two
    own = (_cell_means(fitted**2, side) - one**2) * (_cell_means(here**2, side) - two**2)
    alike = (both + _GRAIN_NOISE) / (np.sqrt(np.maximum(own, 0)) + _GRAIN_NOISE)
    return float((1 - alike).max() / _MOST_UNLIKE)


def _cell_means(values: Float32[np.ndarray, "H W"], side: int) -> Float32[np.ndarray, "R C"]:
    """Means of the squares of a side at all places."""
    means = require_opencv().boxFilter(values, -1, (side, side), anchor=(0, 0))
    return means[: values.shape[0] - side + 1, : values.shape[1] - side + 1]
