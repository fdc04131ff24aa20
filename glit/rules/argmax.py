"""``argmax``: the region with the highest cosine, for every sentence.

region(s) = argmax_r similarity(s, r)   (FAST-GOAL Eq. 1 and 2; the most similar pair comes first)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glit.records import Pair, Region, Scores
from glit.rules.protocol import ranked


@dataclass(frozen=True, slots=True, kw_only=True)
class Argmax:
    """FLISM's rule. Ties go to the lower region and the lower sentence.

    >>> from glit.records import Scores
    >>> similarity = np.array([[0.1, 0.3], [0.5, 0.2]], dtype=np.float32)
    >>> whole = np.zeros(2, dtype=np.float32)
    >>> [(p.sentence, p.region) for p in Argmax()(
    ...     Scores(similarity=similarity, image_similarity=whole), ())]
    [(1, 0), (0, 1)]
    """

    def __call__(self, scores: Scores, regions: Sequence[Region]) -> tuple[Pair, ...]:
        """See :class:`glit.rules.protocol.Rule`."""
        best = scores.similarity.argmax(axis=1)
        value = scores.similarity[np.arange(len(best)), best]
        return ranked(best, value, np.zeros(len(best), dtype=bool))
