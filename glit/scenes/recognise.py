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
    """Return whether nearly all pixels (uint8, RGB) have a colour that a scene under one light can
    have.

    Look at several images of a folder: an ochre map may pass as sand.
    """
    pixels_P3 = pixels_HW3.reshape(-1, 3)
    # a row a channel: comparing whole rows is many times faster than comparing triples
    pixels_3P = pixels_P3[:: len(pixels_P3) // _MOST_PIXELS + 1].T.astype(np.float32)
    if np.ptp(pixels_3P, axis=0).mean() < _GREY:
        return False
    objects_C3, backgrounds_B3 = object_colours(), background_colours()
    for _, colour in LIGHTS.values():
        gain = np.array(colour)
        objects_P = np.any([_near(pixels_3P, each) for each in objects_C3 * gain], axis=0)
        for tone in backgrounds_B3 * gain:
            if float((objects_P | _toned(pixels_3P, tone)).mean()) >= _SHARE:
                return True
    return False


def _toned(pixels_3P: np.ndarray, tone_3: np.ndarray) -> np.ndarray:
    """Return which pixels are the tone at some brightness."""
    brightness_P = np.clip(tone_3 @ pixels_3P / (tone_3 @ tone_3), *_BRIGHTNESS)
    return _near(pixels_3P, tone_3[:, None] * brightness_P)


def _near(pixels_3P: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return which pixels are close in every channel to one colour ``[3]`` or to one each ``[3,
    P]``."""
    found = np.ones(pixels_3P.shape[1], dtype=bool)
    for channel, value in zip(pixels_3P, wanted, strict=True):
        found &= np.abs(channel - value) <= _TOLERANCE
    return found
