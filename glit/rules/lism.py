"""``lism``: argmax with the whole image as a competitor; if it wins, there is no region.

value(s, r) = cos(s, r);  s has no region where cos(s, image) >= max_r cos(s, r)
(GOAL, Eq. 1 and 2 and section 3.1: the pairs of the whole image are discarded)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glit.data.records import Region, Scores
from glit.rules.protocol import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Lism:
    """LISM's rule. The whole image also wins against a region that is only as good, which as a
    rule is the whole image once more.
    """

    def __call__(self, scores: Scores, regions: Sequence[Region]) -> Values:
        best = scores.similarity.max(axis=1)
        return Values(value=scores.similarity, null=scores.image_similarity >= best)
