"""Pairs of a sample, best first: what a rule values, with a probability where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glit.records import Pair, Region, Scores
from glit.rules.calibration import Calibration
from glit.rules.protocol import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """A rule, and what is made of its values."""

    rule: Rule
    calibration: Calibration | None = None
    min_probability: float = 0.0
    """A sentence whose best region is less probable has none."""

    def __call__(self, scores: Scores, regions: Sequence[Region]) -> tuple[Pair, ...]:
        """One pair a sentence; ``pairs[0]`` is *the* local pair of the papers.

        Sentences with a region come first, then the more probable, then the higher value, then the
        earlier sentence; of regions of the same value the first is taken.
        """
        values = self.rule(scores, regions)
        rows = np.arange(len(values.value))
        best = values.value.argmax(axis=1)
        chosen, null = values.value[rows, best], values.null
        probability = np.full(len(rows), np.nan, dtype=np.float32)
        if self.calibration is not None:
            probability = self.calibration.probabilities(values.value, regions)
            null = null | (probability < self.min_probability)
        order = np.lexsort((rows, -chosen, -np.nan_to_num(probability), null))
        return tuple(
            Pair(
                sentence=int(index),
                region=int(best[index]),
                similarity=float(scores.similarity[index, best[index]]),
                global_wins=bool(null[index]),
                probability=(None if self.calibration is None else float(probability[index])),
            )
            for index in order
        )
