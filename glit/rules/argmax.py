"""``argmax``: the region with the highest cosine, for every sentence.

value(s, r) = cos(s, r)   (FAST-GOAL Eq. 1 and 2; the most similar pair comes first)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glit.data.records import Region, Scores
from glit.rules.protocol import Values, no_null


@dataclass(frozen=True, slots=True, kw_only=True)
class Argmax:
    """FLISM's rule.

    >>> similarity = np.array([[0.1, 0.3], [0.5, 0.2]], dtype=np.float32)
    >>> scores = Scores(similarity=similarity, image_similarity=np.zeros(2, dtype=np.float32))
    >>> Argmax()(scores, ()).value.argmax(axis=1).tolist()
    [1, 0]
    """

    def __call__(self, scores: Scores, regions: Sequence[Region]) -> Values:
        return Values(value=scores.similarity, null=no_null(scores.similarity))
