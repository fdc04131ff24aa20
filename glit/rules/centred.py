"""``centred``: the cosine minus what sentence and region have in common with everything.

value(s, r) = c(s, r) - mean_q c(s, q) - region_weight * mean_t c(t, r)

over the regions q and the whole image, and the sentences t. "The light is warm" is about as close
to every region, so nothing is left of it; argmax ranks it first. Taking the row's mean off is the
first step of centred kernel alignment and of NNN's and CSLS's corrections for hubs, here within
one image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glit.records import Region, Scores
from glit.rules.protocol import Values, Weighed, no_null


@dataclass(frozen=True, slots=True, kw_only=True)
class Centred(Weighed):
    """Ranks by how much better a region is than the sentence's others."""

    region_weight: float = 0.0
    """How much of a region's mean over all sentences is taken off too: against regions that are
    close to everything."""

    def __call__(self, scores: Scores, regions: Sequence[Region]) -> Values:
        """See :class:`glit.rules.protocol.Rule`."""
        cosines = self.cosines(scores)
        everything = np.column_stack([cosines, scores.image_similarity.astype(np.float64)])
        value = cosines - everything.mean(axis=1, keepdims=True)
        value -= self.region_weight * cosines.mean(axis=0, keepdims=True)
        return Values(value=self.with_bonus(value, regions), null=no_null(value))
