"""``lism``: as argmax, but the whole image competes, and a sentence that it wins has no local pair.

region(s) = argmax_r similarity(s, r);  s is global where similarity(s, image) >= max_r
(GOAL, section 3.1: the pairs of the whole image are discarded)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glit.records import Pair, Region, Scores
from glit.rules.protocol import ranked


@dataclass(frozen=True, slots=True, kw_only=True)
class Lism:
    """LISM's rule. A sentence that the whole image wins keeps its best region with ``global_wins``
    and comes after all local pairs. At equal cosines the whole image wins: such a region is usually
    the whole image again.
    """

    def __call__(self, scores: Scores, regions: Sequence[Region]) -> tuple[Pair, ...]:
        """See :class:`glit.rules.protocol.Rule`."""
        best = scores.similarity.argmax(axis=1)
        value = scores.similarity[np.arange(len(best)), best]
        return ranked(best, value, scores.image_similarity >= value)
