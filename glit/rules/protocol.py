"""The interface of a pairing rule, and shared options of rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from jaxtyping import Bool, Float

from glit.data.records import Region, Scores
from glit.errors import RecipeError
from glit.plain import limited
from glit.recipes.config import RecipeTable

Matrix = Float[np.ndarray, "S R"]
OPENAI_SCALE = 100.0
"""The learned scale of OpenAI's CLIPs on cosines."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Values:
    """A rule's values for a sample's pairs."""

    value: Matrix
    """Score of every sentence with every region; the highest of a row is the choice."""
    null: Bool[np.ndarray, " S"]
    """Sentences that have no region."""


class Rule(Protocol):
    """Values pairs of sentences and regions.

    The same scores give the same values on every machine: no randomness, no clock, no model. A
    rule whose code comes to answer differently gets a class attribute ``version`` (1 without one).
    """

    def __call__(self, scores: Scores, regions: Sequence[Region]) -> Values:
        """Values of a sample.

        Args:
            scores: of S sentences and R regions.
            regions: the R regions, for rules that look at where a region comes from.
        """
        ...


def no_null(matrix: Matrix) -> Bool[np.ndarray, " S"]:
    """A mask in which every sentence has a region."""
    return np.zeros(len(matrix), dtype=bool)


def log_softmax(logits: Matrix, axis: int) -> Matrix:
    """Log-softmax along an axis."""
    shifted = logits - logits.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def is_detected(regions: Sequence[Region]) -> Bool[np.ndarray, " R"]:
    """Return which regions a model proposed, as opposed to the grid."""
    return np.array([not region.is_grid for region in regions], dtype=bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed(RecipeTable):
    """A rule over logits: cosines times CLIP's own scale, mixed with those of head phrases."""

    table: ClassVar[str] = "pair"

    logit_scale: float | None = limited(None, above=0)
    """The factor on cosines. Without, it is the matcher's own: 100 for OpenAI's CLIPs, about 117
    for SigLIP, 40 for the mini matcher."""
    phrase_weight: float = limited(0.0, least=0, most=1)
    """Share of the sentence's head phrase in its logits, 0 to 1; above 0 needs ``score.phrases =
    true``."""
    detector_bonus: float = limited(0.0)
    """Logits added to a region that a model, not the grid, proposed."""
    grounding_weight: float = limited(0.0, least=0)
    """Logits added to a region in which the grounder is sure to see the sentence's head phrase, in
    proportion to its score; above 0 needs ``ground.enabled = true``."""

    @property
    def scale(self) -> float:
        """``logit_scale``; that of OpenAI's CLIPs where neither recipe nor matcher said any."""
        return OPENAI_SCALE if self.logit_scale is None else self.logit_scale

    def logits(self, scores: Scores) -> Matrix:
        """scale ((1 - w) cos(sentence, region) + w cos(head phrase, region)).

        w is ``phrase_weight``.

        Raises:
            RecipeError: phrases are wanted and were not scored.
        """
        if not self.phrase_weight:
            return self.scale * scores.similarity.astype(np.float64)
        if scores.phrase_similarity is None:
            raise RecipeError(
                "pair.phrase_weight: the scores hold no head phrases; build with "
                "score.phrases = true"
            )
        both = (scores.similarity, scores.phrase_similarity)
        plain, phrases = (each.astype(np.float64) for each in both)
        mixed = (1 - self.phrase_weight) * plain + self.phrase_weight * phrases
        return self.scale * mixed

    def with_bonus(self, value: Matrix, scores: Scores, regions: Sequence[Region]) -> Matrix:
        """Add ``detector_bonus`` to the logits of a model's regions, and what the grounder says.

        Raises:
            RecipeError: a grounder is wanted and none was asked.
        """
        if self.detector_bonus:
            value = value + self.detector_bonus * is_detected(regions)
        if not self.grounding_weight:
            return value
        if scores.agreement is None:
            raise RecipeError(
                "pair.grounding_weight: the scores hold nothing of a grounder; build with "
                "ground.enabled = true"
            )
        return value + self.grounding_weight * scores.agreement.astype(np.float64)
