"""``dual-softmax``: the product of softmaxes over regions and over sentences.

value(s, r) = softmax_r(T c(s, .))[r] * softmax_s(T c(., r))[s],   c the logits

(LoFTR's dual-softmax, Eq. 2 of Sun et al. 2021; for retrieval CAMoE, Cheng et al. 2021)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from glit.data.records import Region, Scores
from glit.plain import limited
from glit.rules.protocol import Values, Weighed, log_softmax, no_null


@dataclass(frozen=True, slots=True, kw_only=True)
class DualSoftmax(Weighed):
    """Ranks by agreement in both directions."""

    version: ClassVar = 2
    sharpness: float = limited(0.5, above=0)
    """T, the factor on logits; a higher value favours the best candidate more."""

    def __call__(self, scores: Scores, regions: Sequence[Region]) -> Values:
        logits = self.sharpness * self.with_bonus(self.logits(scores), scores, regions)
        value = np.exp(log_softmax(logits, axis=1) + log_softmax(logits, axis=0))
        return Values(value=value, null=no_null(value))
