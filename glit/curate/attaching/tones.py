"""The tones of a picture that was made brighter, darker or grey, or given other contrast or colour.

One change of contrast, brightness and saturation for the whole picture is found first, if contrast
rose, as it clips; then one linear change of each channel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float32

LUMA = np.array([0.299, 0.587, 0.114], np.float32)
"""Weights of red, green and blue (ITU-R BT.601)."""
LEAST_GAIN, MOST_GAIN, _LEAST_MIX = 0.35, 2.5, -0.8
"""Changes of contrast, and of saturation, that a picture may have gone through."""
_SAMPLED = 6_000
"""Number of pixels to which a change of tones is fitted."""
_FITTED, _HUBER = 6, 12.0
"""Steps by which contrast is fitted, and the difference from which pixels count less."""
_LEAST_GAINED = 0.25
"""Grey levels by which a change of tones has to explain half of the pixels better than none."""
_GREY = 1.5
"""Colour, in grey levels, below which a picture is grey."""
_RISEN, _CUT = 1.1, 12.0
"""Contrast that cuts off detail, and grey levels from black or white at which it does."""


def toned(
    there: Float32[np.ndarray, "H W 3"],
    contrasted: Float32[np.ndarray, "H W 3"],
    here: Float32[np.ndarray, "H W 3"],
) -> tuple[Float32[np.ndarray, "H W 3"], str] | None:
    """Return the published pixels in the tones of the found ones: brighter, darker, with more or
    less contrast or colour; None if no such change explains them."""
    step = max(1, there.size // 3 // _SAMPLED)
    before, wanted = (each.reshape(-1, 3)[::step] for each in (there, here))
    greyed = _colour(wanted) < _GREY and _colour(before) > max(_GREY, 2 * _colour(wanted))
    if greyed:  # other weights of the channels would hide that an object of one colour is missing
        contrasted = np.repeat((contrasted @ LUMA)[..., None], 3, axis=2)
    some = contrasted.reshape(-1, 3)[::step]
    mixing, shift = np.empty((3, 3), np.float32), np.empty(3, np.float32)
    for channel in range(3):
        columns = np.stack([some[:, channel], some @ LUMA, np.ones(len(some), np.float32)], 1)
        these = wanted[:, channel]
        inside = (these > 5) & (these < 250)  # what is too dark or too bright tells nothing
        if inside.mean() < 0.2:
            inside[:] = True
        values = _solve(columns[inside], these[inside])
        miss = np.abs((columns @ values).clip(0, 255) - these)
        held = inside & (miss <= np.quantile(miss, 0.8) + 1)  # a part that differs bends no other
        own, grey, shift[channel] = _solve(columns[held], these[held])
        if not LEAST_GAIN <= own + grey <= MOST_GAIN or grey < _LEAST_MIX:
            return None
        mixing[channel] = grey * LUMA
        mixing[channel, channel] += own
    fitted = (contrasted @ mixing.T + shift).clip(0, 255)
    if greyed:
        return fitted, "grey"
    made = fitted.reshape(-1, 3)[::step]
    gained = np.median(np.abs(some - wanted)) - np.median(np.abs(made - wanted))
    if gained < _LEAST_GAINED:  # a fit to the few pixels of a colour may be worse than none
        fitted = contrasted
    moved = np.abs(fitted.reshape(-1, 3)[::step] - before).mean()
    return fitted, "same" if moved < 4 else "changed"


def contrasted(
    there: Float32[np.ndarray, "H W 3"], here: Float32[np.ndarray, "H W 3"]
) -> tuple[Float32[np.ndarray, "H W 3"], Float32[np.ndarray, "H W"]]:
    """Return the published pixels with the contrast, the brightness and the saturation of the found
    ones, one change of each for all pixels, clipped as programs do (Gauss-Newton); and 1 where
    pixels are clipped, else 0."""
    step = max(1, there.size // 3 // _SAMPLED)
    some, wanted = (each.reshape(-1, 3)[::step] for each in (there, here))
    low, high = (np.quantile(each @ LUMA, (0.25, 0.75)) for each in (some, wanted))
    gain = np.clip((high[1] - high[0]) / max(low[1] - low[0], 1), LEAST_GAIN, MOST_GAIN)
    tones = np.array([gain, high.mean() - gain * low.mean(), 1.0])
    for _ in range(_FITTED):
        values, light, made = _made(some, tones)
        held = (values > 0) & (values < 255)
        slopes = np.stack([some * held, held.astype(np.float32)])
        slopes = tones[2] * slopes + (1 - tones[2]) * (slopes @ LUMA)[..., None]
        columns = np.stack([*slopes, values.clip(0, 255) - light], -1)
        miss = wanted - made
        weights = 1 / np.maximum(np.abs(miss) / _HUBER, 1) * ((made > 0) & (made < 255))
        weighted = (columns * weights[..., None]).reshape(-1, 3)
        square = columns.reshape(-1, 3).T @ weighted + np.eye(3) * 1e-3
        tones = tones + np.linalg.solve(square, weighted.T @ miss.ravel())
        tones = tones.clip((LEAST_GAIN, -255, 0), (MOST_GAIN, 255, MOST_GAIN))
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
    light = (clipped @ LUMA)[..., None]
    return values, light, (tones[2] * clipped + (1 - tones[2]) * light).clip(0, 255)


def _colour(colours: Float32[np.ndarray, "N 3"]) -> float:
    """Return the mean distance of red, green and blue from their mean, in grey levels."""
    return float(np.abs(colours - colours.mean(1, keepdims=True)).mean())


def _solve(columns: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Least squares, drawn a little towards no change."""
    ridge = np.diag([1.0, 1.0, 0.01]) * len(columns)
    start = np.array([1.0, 0.0, 0.0])
    square, both = columns.T @ columns, columns.T @ wanted
    return np.linalg.solve(square + ridge, both + ridge @ start).astype(np.float32)
