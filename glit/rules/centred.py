"""``centred``: the logit minus the sentence's mean over everything.

value(s, r) = c(s, r) - mean_q c(s, q)

c the logits, over the regions q and the whole image. "The light is warm" is
about as close to every region, so nothing is left of it; argmax ranks it first. What NNN (Chowdhury
et al. 2024) and CSLS (Conneau et al. 2018, Eq. 2) take off for hubs over a whole gallery is taken
off within one image here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glit.data.records import Region, Scores
from glit.rules.protocol import Values, Weighed, no_null


@dataclass(frozen=True, slots=True, kw_only=True)
class Centred(Weighed):
    """Ranks by how much better a region is than the sentence's others."""

    def __call__(self, scores: Scores, regions: Sequence[Region]) -> Values:
        logits = self.logits(scores)
        whole = self.scale * scores.image_similarity.astype(np.float64)
        value = logits - np.column_stack([logits, whole]).mean(axis=1, keepdims=True)
        return Values(value=self.with_bonus(value, scores, regions), null=no_null(value))
