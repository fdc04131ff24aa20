"""Points that two pictures share, and the scale and shift that most of them agree on.

Points are matched by their descriptors (ratio test, Lowe 2004); a place is drawn from pairs of
matches (RANSAC, Fischler and Bolles 1981).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from glit.curate.attaching.annotations import SIDE
from glit.curate.attaching.features import Features

if TYPE_CHECKING:
    from jaxtyping import Float32, Int

LEAST_MATCHES = 6
_RATIO = 0.85
_ANGLE = 20.0
"""Degrees by which the direction of a point may miss a quarter turn."""
_TRIALS = 400
_NEAR = 0.008
"""Share of the longer side by which a match may miss."""
_SCALES, _SQUEEZE = (0.15, 6.0), 2.0
_SPREAD = 12.0
"""Pixels by which the two matches of a trial lie apart, at least, across and down."""
Line = tuple[tuple[float, float], tuple[float, float]]
"""Scale and shift across, and down: pixels of the found picture from the published one's."""


def find_matches(points: Features, own: Features) -> Int[np.ndarray, "M 2"]:
    """Numbers of points in both that look alike, and like nothing else."""
    if len(points) < 2 or len(own) < 2:
        return np.zeros((0, 2), np.int64)
    a, b = points.descriptors.astype(np.float32), own.descriptors.astype(np.float32)
    apart = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
    rows = np.arange(len(b))
    first = apart.argmin(axis=0)
    best = apart[first, rows]
    other = apart.copy()
    other[first, rows] = np.inf
    good = best < _RATIO**2 * other.min(axis=0)
    good &= apart.argmin(axis=1)[first] == rows
    return np.stack([first[good], rows[good]], axis=1)


def likely_turns(angles: Float32[np.ndarray, " M"]) -> list[int]:
    """The one or two quarter turns that most matches agree on, in degrees."""
    quarters = np.rint(angles / 90).astype(int) % 4
    near = np.abs((angles + 45) % 90 - 45) < _ANGLE
    votes = np.bincount(quarters[near], minlength=4)
    order = np.argsort(-votes, kind="stable")[:2]
    return [90 * int(each) for each in order if votes[each] >= LEAST_MATCHES]


def turned_back(points: Float32[np.ndarray, "M 2"], turned: int) -> Float32[np.ndarray, "M 2"]:
    """Return points, as shares of the sides, of a picture that is turned back."""
    x, y = points.T
    for _ in range(turned // 90):
        x, y = y, 1 - x
    return np.stack([x, y], axis=1)


def fit_line(there: Float32[np.ndarray, "M 2"], here: Float32[np.ndarray, "M 2"]) -> Line | None:
    """Return the scale and shift that most matches agree on; None if too few do."""
    draw = np.random.default_rng(0).integers(0, len(there), (_TRIALS, 2))
    one, two = there[draw[:, 0]], there[draw[:, 1]]
    with np.errstate(all="ignore"):
        scale = (here[draw[:, 1]] - here[draw[:, 0]]) / (two - one)
        shift = here[draw[:, 0]] - scale * one
        can_be = (np.abs(two - one) >= _SPREAD).all(1)
        can_be &= ((scale >= _SCALES[0]) & (scale <= _SCALES[1])).all(1)
        can_be &= np.abs(np.log(scale[:, 0] / scale[:, 1])) <= np.log(_SQUEEZE)
    if not can_be.any():
        return None
    scale, shift = scale[can_be], shift[can_be]
    within = _NEAR * SIDE * np.maximum(scale.max(1), 1)
    misses = np.abs(there[None] * scale[:, None] + shift[:, None] - here[None]).max(2)
    agree = misses <= within[:, None]
    held = agree[agree.sum(1).argmax()]
    line = ((1.0, 0.0), (1.0, 0.0))
    for _ in range(3):
        if held.sum() < LEAST_MATCHES:
            return None
        line = (_line(there[held, 0], here[held, 0]), _line(there[held, 1], here[held, 1]))
        fitted = np.stack([line[k][0] * there[:, k] + line[k][1] for k in (0, 1)], axis=1)
        miss = np.abs(fitted - here).max(1)
        held = miss <= max(2.5 * float(np.median(miss[held])), 0.5)
    if min(line[0][0], line[1][0]) <= 0:
        return None
    return line


def _line(x: Float32[np.ndarray, " M"], y: Float32[np.ndarray, " M"]) -> tuple[float, float]:
    away = x - x.mean()
    scale = float(away @ y) / max(float(away @ away), 1e-6)
    return scale, float(y.mean()) - scale * float(x.mean())
