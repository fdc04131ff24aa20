"""Rank a sample's pairs by a rule's values, with a probability if there is a calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glit.data.records import Pair, Region, Scores, Sentence
from glit.rules.calibration import Calibration
from glit.rules.protocol import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """A rule, and the conversion of its values to pairs."""

    rule: Rule
    calibration: Calibration | None = None
    min_probability: float = 0.0
    """A sentence whose best region is less probable has none."""
    min_support: float = 0.0
    """A sentence that is less probably true of the image has no region either."""

    def __call__(
        self, scores: Scores, regions: Sequence[Region], sentences: Sequence[Sentence]
    ) -> tuple[Pair, ...]:
        """Return one pair a sentence; ``pairs[0]`` is *the* local pair of the papers.

        Sentences with a region come first, then the more probable, then the higher value, then the
        earlier sentence; of regions of the same value the first is taken.
        """
        values = self.rule(scores, regions)
        rows = np.arange(len(values.value))
        best = values.value.argmax(axis=1)
        chosen, null = values.value[rows, best], values.null
        probability = support = np.full(len(rows), np.nan, dtype=np.float32)
        if self.calibration is not None:
            probability = self.calibration.probabilities(values.value, scores, regions)
            support = self.calibration.supports(scores, sentences)
            null = null | (probability < self.min_probability) | (support < self.min_support)
        order = np.lexsort((rows, -chosen, -np.nan_to_num(probability), null))
        return tuple(
            Pair(
                sentence=int(index),
                region=int(best[index]),
                similarity=float(scores.similarity[index, best[index]]),
                global_wins=bool(null[index]),
                probability=_known(probability[index]),
                support=_known(support[index]),
            )
            for index in order
        )


def _known(value: Any) -> float | None:
    return None if math.isnan(value) else float(value)
