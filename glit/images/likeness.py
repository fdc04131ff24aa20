"""Compare the looks of pictures: a hash of what rises and falls, confirmed by colours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from glit.images.errors import Pixels

_LEAST_STEP = 3
"""Grey levels by which neighbouring cells differ, at least, where that is no noise."""
_LEAST_STEPS = 12
"""Fewest steps, of 64, of a hash: one of fewer says next to nothing of its picture, and is none."""
_SIDE = 8
_MOST_APART, _MOST_MEAN = 90, 24
"""Largest differences, of 255, of the colours of one cell, and of all cells on average."""


BEST_FIRST = ("labels", "pixels", "sharpness")
"""What tells which of several pictures that look the same stays, the larger value of each first:
kinds of labels that it has, its width times its height, and its sharpness
(:func:`glit.data.quality.sharpness`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The look of a picture, in 200 bytes."""

    hash: int | None
    """64-bit difference hash of the grey picture at 9 x 8, one bit per rising neighbour, signed, so
    that it fits Arrow's int64; None for a picture too even to have one."""
    colours: bytes
    """RGB means of 8 x 8 cells."""


def look(pixels: Pixels) -> Look:
    """Return how a picture looks."""
    image = Image.fromarray(pixels)
    grey = image.convert("L").resize((9, 8), Image.Resampling.BOX)
    cells = np.asarray(grey, dtype=np.int16)
    colours = np.asarray(image.resize((_SIDE, _SIDE), Image.Resampling.BOX)).tobytes()
    rises = np.diff(cells, axis=1)
    steps = int((np.abs(rises) >= _LEAST_STEP).sum())
    bits = np.packbits((rises > 0).ravel()).view(">i8")[0]
    return Look(hash=int(bits) if steps >= _LEAST_STEPS else None, colours=colours)


def same_colours(first: bytes, second: bytes) -> bool:
    """Return whether the colours of two pictures whose hashes are alike are alike too."""
    return bool(alike(cells_of([first]), cells_of([second]))[0])


def cells_of(colours: list[bytes]) -> UInt8[np.ndarray, "N 192"]:
    """Colours of N pictures as rows."""
    return np.frombuffer(b"".join(colours), np.uint8).reshape(-1, 3 * _SIDE**2)


def alike(first: UInt8[np.ndarray, "N 192"], second: UInt8[np.ndarray, "N 192"]) -> np.ndarray:
    """Return whether the colours of each pair are alike."""
    apart = np.abs(first.astype(np.int16) - second)
    return (apart.max(axis=1) <= _MOST_APART) & (apart.mean(axis=1) <= _MOST_MEAN)
