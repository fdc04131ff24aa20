"""Masks of the ten shapes, each filling its square bounding box.

A shape is a function of coordinates in ``[-1, 1]²`` (x to the right, y down) that is positive
inside. Coverage is sampled on a grid twice as fine and averaged, which gives soft edges.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from glit.scenes.vocabulary import SHAPES

_OVERSAMPLE = 2


def _polygon(x: np.ndarray, y: np.ndarray, corners: list[tuple[float, float]]) -> np.ndarray:
    """Even-odd test against a polygon: +1 inside, -1 outside."""
    inside = np.zeros(x.shape, dtype=bool)
    for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1], strict=True):
        if ay == by:
            continue
        crosses = (ay > y) != (by > y)
        inside ^= crosses & (x < ax + (y - ay) * (bx - ax) / (by - ay))
    return np.where(inside, 1.0, -1.0)


def _star_corners() -> list[tuple[float, float]]:
    """A five-pointed star stretched to fill the box; inner radius 0.42 of the outer."""
    angles = [np.pi * (i / 5 - 0.5) for i in range(10)]
    radii = [1.0 if i % 2 == 0 else 0.42 for i in range(10)]
    points = [(r * np.cos(a), r * np.sin(a)) for a, r in zip(angles, radii, strict=True)]
    low_x, high_x = min(p[0] for p in points), max(p[0] for p in points)
    low_y, high_y = min(p[1] for p in points), max(p[1] for p in points)
    return [
        (2 * (px - low_x) / (high_x - low_x) - 1, 2 * (py - low_y) / (high_y - low_y) - 1)
        for px, py in points
    ]


def _inside(shape: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The shape's inside function on coordinates ``x``, ``y`` in ``[-1, 1]``."""
    radius = np.hypot(x, y)
    match shape:
        case "circle":
            return 1 - radius
        case "square":
            return np.ones_like(x)
        case "triangle":
            return _polygon(x, y, [(0.0, -1.0), (1.0, 1.0), (-1.0, 1.0)])
        case "star":
            return _polygon(x, y, _star_corners())
        case "cross":
            return 0.34 - np.minimum(np.abs(x), np.abs(y))
        case "ring":
            return np.minimum(1 - radius, radius - 0.52)
        case "crescent":
            # a disc widened to fill the box, less a disc shifted to the right
            disc = 1 - np.hypot((x - 0.24) / 1.24, y)
            bite = np.hypot((x - 0.86) / 1.08, y / 0.84) - 1
            return np.minimum(disc, bite)
        case "heart":
            lobes = 0.52 - np.hypot(np.abs(x) - 0.48, y + 0.48)
            wedge = np.minimum(1.0 - np.abs(x) * 1.02 - (y + 0.3) * 0.77, y + 0.34)
            return np.maximum(lobes, wedge)
        case "hourglass":
            return np.abs(y) + 0.12 - np.abs(x)
        case "arch":
            outer = np.where(y < 0, 1 - radius, 1 - np.abs(x))
            opening = np.where(y < 0, radius - 0.5, np.abs(x) - 0.5)
            return np.minimum(outer, opening)
    raise AssertionError(f"unknown shape {shape}; shapes are {SHAPES}")


@lru_cache(maxsize=4096)
def coverage(shape: str, side_px: int) -> np.ndarray:
    """Share of each pixel that the shape covers: float32 ``[side_px, side_px]`` in ``[0, 1]``.

    The array is shared between callers and read-only.
    """
    fine = side_px * _OVERSAMPLE
    axis = (np.arange(fine) + 0.5) / fine * 2 - 1
    x, y = np.meshgrid(axis, axis)
    covered = (_inside(shape, x, y) > 0).astype(np.float32)
    blocks = covered.reshape(side_px, _OVERSAMPLE, side_px, _OVERSAMPLE)
    result = blocks.mean(axis=(1, 3))
    result.flags.writeable = False
    return result
