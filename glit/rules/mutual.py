"""``mutual``: pairs in which sentence and region are each other's best.

value(s, r) = c(s, r), the logits;  s has no region where another sentence is closer to its best one
(mutual nearest neighbours, Lowe's and every matcher's cross-check)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glit.data.records import Region, Scores
from glit.rules.protocol import Values, Weighed


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutual(Weighed):
    """At most one sentence a region; ties go to the earlier sentence."""

    def __call__(self, scores: Scores, regions: Sequence[Region]) -> Values:
        value = self.with_bonus(self.logits(scores), scores, regions)
        best = value.argmax(axis=1)
        return Values(value=value, null=value.argmax(axis=0)[best] != np.arange(len(value)))
