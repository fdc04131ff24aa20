"""What a rule of pairing is, and what rules share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from jaxtyping import Bool, Float, Int

from glit.records import Pair, Region, Scores


class Rule(Protocol):
    """Chooses pairs of sentences and regions.

    The same scores give the same pairs on every machine: no randomness, no clock, no model.
    """

    def __call__(self, scores: Scores, regions: Sequence[Region]) -> tuple[Pair, ...]:
        """Pairs of a sample, best first; ``pairs[0]`` is *the* local pair of the papers.

        Args:
            scores: of S sentences and R regions.
            regions: the R regions, for rules that look at where a region comes from.
        """
        ...


def ranked(
    region: Int[np.ndarray, " S"],
    value: Float[np.ndarray, " S"],
    global_wins: Bool[np.ndarray, " S"],
) -> tuple[Pair, ...]:
    """One pair a sentence: local ones first, then by falling value, then by sentence.

    Args:
        region: chosen for every sentence.
        value: cosine of the choice.
        global_wins: which sentences give no local pair.
    """
    order = np.lexsort((np.arange(len(region)), -value, global_wins))
    return tuple(
        Pair(
            sentence=int(index),
            region=int(region[index]),
            similarity=float(value[index]),
            global_wins=bool(global_wins[index]),
        )
        for index in order
    )
