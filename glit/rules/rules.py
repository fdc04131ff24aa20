"""The rules: what a sentence's cosines say of its region, c below being logits of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from glit.data.records import Region, Scores
from glit.plain import limited
from glit.rules.protocol import Rule, Values, Weighed, log_softmax, no_null


@dataclass(frozen=True, slots=True, kw_only=True)
class Argmax:
    """``argmax``: the region with the highest cosine, for every sentence; FLISM's rule.

    value(s, r) = cos(s, r)   (FAST-GOAL, Eq. 1 and 2; the most similar pair comes first)

    >>> similarity = np.array([[0.1, 0.3], [0.5, 0.2]], dtype=np.float32)
    >>> scores = Scores(similarity=similarity, image_similarity=np.zeros(2, dtype=np.float32))
    >>> Argmax()(scores, ()).value.argmax(axis=1).tolist()
    [1, 0]
    """

    def __call__(self, scores: Scores, regions: Sequence[Region]) -> Values:
        return Values(value=scores.similarity, null=no_null(scores.similarity))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lism:
    """``lism``: argmax with the whole image as a competitor; if it wins, there is no region.

    value(s, r) = cos(s, r);  s has no region where cos(s, image) >= max_r cos(s, r)
    (GOAL, Eq. 1 and 2 and section 3.1: the pairs of the whole image are discarded)

    The whole image also wins against a region that is only as good, which as a rule is the whole
    image once more.
    """

    def __call__(self, scores: Scores, regions: Sequence[Region]) -> Values:
        best = scores.similarity.max(axis=1)
        return Values(value=scores.similarity, null=scores.image_similarity >= best)


@dataclass(frozen=True, slots=True, kw_only=True)
class Centred(Weighed):
    """``centred``: by how much better a region is than the sentence's others.

    value(s, r) = c(s, r) - mean_q c(s, q),   over the regions q and the whole image

    "The light is warm" is about as close to every region, so nothing is left of it; argmax ranks it
    first. What NNN (Chowdhury et al. 2024) and CSLS (Conneau et al. 2018, Eq. 2) take off for hubs
    over a whole gallery is taken off within one image here.
    """

    def __call__(self, scores: Scores, regions: Sequence[Region]) -> Values:
        logits = self.logits(scores)
        whole = self.scale * scores.image_similarity.astype(np.float64)
        value = logits - np.column_stack([logits, whole]).mean(axis=1, keepdims=True)
        return Values(value=self.with_bonus(value, scores, regions), null=no_null(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutual(Weighed):
    """``mutual``: pairs in which sentence and region are each other's best.

    value(s, r) = c(s, r);  s has no region where another sentence is closer to its best one
    (mutual nearest neighbours, Lowe's and every matcher's cross-check)

    At most one sentence a region; ties go to the earlier sentence.
    """

    def __call__(self, scores: Scores, regions: Sequence[Region]) -> Values:
        value = self.with_bonus(self.logits(scores), scores, regions)
        best = value.argmax(axis=1)
        return Values(value=value, null=value.argmax(axis=0)[best] != np.arange(len(value)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DualSoftmax(Weighed):
    """``dual-softmax``: agreement in both directions.

    value(s, r) = softmax_r(T c(s, .))[r] * softmax_s(T c(., r))[s]
    (LoFTR's dual-softmax, Eq. 2 of Sun et al. 2021; for retrieval CAMoE, Cheng et al. 2021)
    """

    sharpness: float = limited(0.5, above=0)
    """T, the factor on logits; a higher value favours the best candidate more."""

    def __call__(self, scores: Scores, regions: Sequence[Region]) -> Values:
        logits = self.sharpness * self.with_bonus(self.logits(scores), scores, regions)
        value = np.exp(log_softmax(logits, axis=1) + log_softmax(logits, axis=0))
        return Values(value=value, null=no_null(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sinkhorn(Weighed):
    """``sinkhorn``: optimal transport between sentences and regions, with a null row and column.

    P = diag(u) exp(T C) diag(v), C the logits with one column more, the whole image, and one row
    more, "no sentence": the mean over the sentences, without bonuses, since a factor of a whole
    column is scaled away. Every sentence and every region has mass 1, the null column can take all
    sentences, the null row all regions. value = P without the null ones; a sentence that gives the
    null column more than any region has none.

    (Sinkhorn's scaling, Cuturi 2013; the dustbins of SuperGlue, Sarlin et al. 2020, section 3.2,
    with the whole image's logits in place of a learned constant)
    """

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


RULES: dict[str, type[Rule]] = {
    "argmax": Argmax,
    "lism": Lism,
    "centred": Centred,
    "dual-softmax": DualSoftmax,
    "sinkhorn": Sinkhorn,
    "mutual": Mutual,
}
"""By the name that ``pair.rule`` takes."""
