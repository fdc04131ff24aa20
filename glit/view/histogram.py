"""Histograms from exact counts: bins with round edges, and three quantiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_MOST_BINS = 28
_STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Counts in bins of one width."""

    start: float
    """Left edge of the first bin."""
    step: float
    """Width of a bin."""
    counts: tuple[int, ...]
    low: float
    """5 % of the values lie below."""
    median: float
    high: float
    """5 % of the values lie above."""
    total: int


def histogram(values: Sequence[tuple[float, int]], *, smallest_step: float) -> Histogram | None:
    """Make bins of a round width; None if there is nothing to count.

    Args:
        values: values with how often each occurs, rising; finite.
        smallest_step: the values are multiples of it, and so are the bins.

    >>> histogram([(1, 2), (3, 4)], smallest_step=1)
    Histogram(start=1, step=1, counts=(2, 0, 4), low=1, median=3.0, high=3, total=6)
    """
    total = sum(count for _, count in values)
    if not total:
        return None
    first, last = values[0][0], values[-1][0]
    step = _round_step((last - first) / _MOST_BINS, smallest_step)
    start = math.floor(first / step + 1e-9) * step
    counts = [0] * (math.floor((last - start) / step + 1e-9) + 1)
    for value, count in values:
        counts[math.floor((value - start) / step + 1e-9)] += count
    return Histogram(
        start=start,
        step=step,
        counts=tuple(counts),
        low=_quantile(values, 0.05 * total),
        median=(_quantile(values, total / 2) + _quantile(values, (total + 1) / 2)) / 2,
        high=_quantile(values, 0.95 * total),
        total=total,
    )


def _round_step(wanted: float, smallest: float) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that is no less than both."""
    if wanted <= smallest:
        return smallest
    power = 10.0 ** math.floor(math.log10(wanted))
    for factor in _STEPS:
        step = factor * power
        whole = abs(step / smallest - round(step / smallest)) < 1e-6
        if whole and step >= wanted * (1 - 1e-9):
            return round(step) if smallest == 1 else step
    raise AssertionError((wanted, smallest))


def _quantile(values: Sequence[tuple[float, int]], wanted: float) -> float:
    seen = 0
    for value, count in values:
        seen += count
        if seen >= wanted:
            return value
    return values[-1][0]
