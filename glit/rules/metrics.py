"""Measure how well numbers tell right pairs from wrong ones."""

from __future__ import annotations

import numpy as np

KEPT = 0.95
_BINS = 15


def average_precision(ranks: np.ndarray, right: np.ndarray) -> float:
    """Mean precision at every right pair; ties count as the worst order of theirs."""
    order = np.lexsort((right, -ranks))
    hits = right[order]
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return float(precision[hits].mean()) if hits.any() else 0.0


def removed_at(ranks: np.ndarray, right: np.ndarray, kept: float = KEPT) -> float:
    """Share of the wrong pairs below the rank that keeps this share of the right ones."""
    if right.all() or not right.any():
        return 0.0
    threshold = np.sort(ranks[right])[int((1 - kept) * right.sum())]
    return float((ranks[~right] < threshold).mean())


def calibration_error(probability: np.ndarray, right: np.ndarray) -> float:
    """Mean difference of probability and share of right pairs, over bins of equal width."""
    bins = np.minimum((probability * _BINS).astype(int), _BINS - 1)
    total = 0.0
    for index in np.unique(bins):
        inside = bins == index
        total += inside.mean() * abs(probability[inside].mean() - right[inside].mean())
    return float(total)
