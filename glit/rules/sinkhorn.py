"""``sinkhorn``: optimal transport between sentences and regions, with a null row and column.

P = diag(u) exp(T C) diag(v), C the logits with one column more, the whole image, and one row
more, "no sentence": the mean over the sentences, without bonuses, since a factor of a whole column
is scaled away. Every sentence and every region has mass 1, the null column can take all sentences,
the null row all regions. value = P without the null ones; a
sentence that gives the null column more than any region has none.

(Sinkhorn's scaling, Cuturi 2013; the dustbins of SuperGlue, Sarlin et al. 2020, section 3.2, with
the whole image's logits in place of a learned constant)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from glit.data.records import Region, Scores
from glit.plain import limited
from glit.rules.protocol import Values, Weighed, log_softmax


@dataclass(frozen=True, slots=True, kw_only=True)
class Sinkhorn(Weighed):
    """Ranks by transported mass."""

    version: ClassVar = 2
    sharpness: float = limited(0.5, above=0)
    """T, the factor on logits; a higher value favours the best candidate more."""
    iterations: int = limited(30, least=1)
    """Number of rounds that scale rows and columns."""

    def __call__(self, scores: Scores, regions: Sequence[Region]) -> Values:
        whole = self.scale * scores.image_similarity.astype(np.float64)
        plain = self.logits(scores)
        logits = np.column_stack([self.with_bonus(plain, scores, regions), whole])
        no_sentence = np.column_stack([plain, whole]).mean(axis=0)
        logits = self.sharpness * np.vstack([logits, no_sentence])
        plan = np.exp(_scaled(logits, self.iterations))[:-1]
        value, null = plan[:, :-1], plan[:, -1]
        return Values(value=value, null=null > value.max(axis=1))


def _scaled(logits: Float[np.ndarray, "S1 R1"], iterations: int) -> Float[np.ndarray, "S1 R1"]:
    """Logarithm of the transport plan, rows scaled first."""
    num_sentences, num_regions = logits.shape[0] - 1, logits.shape[1] - 1
    rows = np.log([*[1] * num_sentences, num_regions])[:, None]
    columns = np.log([*[1] * num_regions, num_sentences])[None]
    for _ in range(iterations):
        logits = rows + log_softmax(logits, axis=1)
        logits = columns + log_softmax(logits, axis=0)
    return logits
