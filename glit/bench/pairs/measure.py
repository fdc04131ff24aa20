"""Figures of a pairing over samples whose right pairs are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glit.bench.pairs.truth import Judged
from glit.rules.calibration import Calibration
from glit.rules.evidence import AGREEMENT, PAIR_EVIDENCE, Evidence, pair_evidence
from glit.rules.logistic import fit
from glit.rules.pairing import Pairing
from glit.rules.protocol import Rule

KEPT = 0.95
_BINS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one pairing over some samples; shares of 1."""

    best_right: float
    """Images whose best pair is right."""
    average_precision: float
    """Over all pairs of all images, ranked by probability, without one by value."""
    removed: float
    """Wrong pairs that fall away while 95 % of the right ones are kept."""
    right: float
    """Pairs that are right."""
    ambient: float
    """Pairs that are wrong, but tell of background or light."""
    calibration_error: float | None
    """Expected calibration error over 15 bins of equal width (Guo et al. 2017, Eq. 3)."""


def measure(samples: Sequence[Judged], rule: Rule, calibration: Calibration | None) -> Figures:
    """Figures of a rule; every sentence has a pair here, with a region or without."""
    pairing = Pairing(rule=rule, calibration=calibration)
    ranks: list[float] = []
    right: list[bool] = []
    ambient: list[bool] = []
    best: list[bool] = []
    for sample in samples:
        pairs = pairing(sample.scores, sample.regions, sample.sentences)
        value = rule(sample.scores, sample.regions)
        own = [bool(sample.right[pair.sentence, pair.region]) for pair in pairs]
        for pair in pairs:
            rank = pair.probability
            if rank is None:  # those that the rule takes the region away from come last
                rank = float(value.value[pair.sentence, pair.region]) - 1e3 * pair.global_wins
            ranks.append(rank)
            ambient.append(bool(sample.ambient[pair.sentence]))
        right += own
        best.append(own[0])
    found, true = np.array(ranks), np.array(right)
    return Figures(
        best_right=float(np.mean(best)),
        average_precision=average_precision(found, true),
        removed=removed_at(found, true),
        right=float(true.mean()),
        ambient=float(np.mean(~true & np.array(ambient))),
        calibration_error=None if calibration is None else calibration_error(found, true),
    )


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


def calibrated(
    samples: Sequence[Judged], rule: Rule, *, table: dict[str, object], scores: dict[str, Any]
) -> Calibration:
    """A calibration of a rule, fitted on samples whose right pairs are known.

    Args:
        samples: what to fit on.
        rule: whose values are calibrated.
        table: the rule and its options, as in ``[pair]``.
        scores: what gave the scores; see :func:`glit.stages.pair.identity_of_scores`.

    Raises:
        RecipeError: all pairs are right, or all wrong.
    """
    pairs: list[Evidence] = []
    right: list[np.ndarray] = []
    for sample in samples:
        value = rule(sample.scores, sample.regions).value
        pairs.append(pair_evidence(value, sample.scores, sample.regions))
        right.append(sample.right[np.arange(len(value)), value.argmax(axis=1)])
    true = np.concatenate(right)
    names = [*PAIR_EVIDENCE, *({AGREEMENT} & set(pairs[0]))]
    return Calibration(
        rule=table,
        scores=scores,
        pair=fit(names, stacked(pairs, names), true),
        fitted_on={"pairs": len(true), "right": int(true.sum())},
    )


def stacked(found: Sequence[Evidence], names: Sequence[str]) -> np.ndarray:
    """Evidence of several samples as rows [N, K]."""
    return np.concatenate([np.column_stack([each[name] for name in names]) for each in found])
