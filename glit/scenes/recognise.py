"""Tell the procedural scenes from other images by their colours."""

from __future__ import annotations

import numpy as np

from glit.scenes.render import background_colours, object_colours
from glit.scenes.vocabulary import LIGHTS

_TOLERANCE = 10.0
"""Per channel, for scenes that were saved as JPEG."""
_BRIGHTNESS = (0.5, 1.5)
"""Range of a texture's brightness around its base colour."""
_SHARE = 0.65
"""Reached by 279 of 280 scenes (PNG and JPEG, 64 to 512 pixels) and by 4 of 76
photographs and drawings."""
_GREY = 3.0
"""Mean difference of the channels below which a picture is greyscale; tiles in daylight have 8."""
_MOST_PIXELS = 20_000


def looks_like_scene(pixels_HW3: np.ndarray) -> bool:
    """Whether nearly all pixels (uint8, RGB) have a colour that a scene under one light can have.

    Look at several images of a folder: an ochre map may pass as sand.
    """
    pixels_P3 = pixels_HW3.reshape(-1, 3)
    pixels_P3 = pixels_P3[:: len(pixels_P3) // _MOST_PIXELS + 1].astype(np.float64)
    if np.ptp(pixels_P3, axis=1).mean() < _GREY:
        return False
    objects_C3, backgrounds_B3 = object_colours(), background_colours()
    return any(
        _share(pixels_P3, objects_C3 * gain, tone * gain) >= _SHARE
        for gain in (np.array(gain) for _, gain in LIGHTS.values())
        for tone in backgrounds_B3
    )


def _share(pixels_P3: np.ndarray, objects_C3: np.ndarray, tone_3: np.ndarray) -> float:
    """Share of the pixels that are an object's colour, or the tone at some brightness."""
    brightness_P = np.clip(pixels_P3 @ tone_3 / (tone_3 @ tone_3), *_BRIGHTNESS)
    found_P = _near(pixels_P3, brightness_P[:, None] * tone_3)
    for colour in objects_C3:
        found_P |= _near(pixels_P3, colour)
    return float(found_P.mean())


def _near(pixels_P3: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    return np.abs(pixels_P3 - wanted).max(axis=1) <= _TOLERANCE
