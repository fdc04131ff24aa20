"""Compute the evidence for a pair and for a sentence: the inputs of calibrations.

Everything is read from stored numbers, so no calibration needs a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int

from glit.data.records import Region, Scores, Sentence
from glit.rules.protocol import Matrix, is_detected

Evidence = Mapping[str, Float[np.ndarray, " _"]]
"""By name, a number for every sentence; NaN where it is not known."""
PAIR_EVIDENCE = ("value", "detected", "lead_over_regions", "lead_over_sentences")
"""The evidence that every dataset has for a pair."""
SUPPORT_EVIDENCE = ("closest", "image")
"""The evidence that every dataset has for a sentence."""
AGREEMENT = "agreement"
"""Evidence for a pair, where a grounder was asked for the caption's phrases (``ground.enabled``).
"""
LOGPROBS = ("mean_logprob", "min_logprob")
"""Evidence for a sentence, where the captioner said how sure it was."""


def pair_evidence(
    value: Matrix,
    scores: Scores,
    regions: Sequence[Region],
    chosen: Int[np.ndarray, " S"] | None = None,
) -> Evidence:
    """Compute the evidence for each sentence's pair with the region chosen, by default the best.

    Its value; 1 for a region that a model proposed, 0 for the grid's; its lead over the
    sentence's next best region; its lead over the next best sentence of that region; how much a
    detector that was asked for the sentence's phrase agrees. Where there is no other, the lead is
    0.
    """
    rows = np.arange(len(value))
    best = value.argmax(axis=1) if chosen is None else chosen
    own = value[rows, best].astype(np.float64)
    others = value.astype(np.float64)
    others[rows, best] = -np.inf
    columns = value.T[best].astype(np.float64)
    columns[rows, rows] = -np.inf
    found = {
        "value": own,
        "detected": is_detected(regions)[best].astype(np.float64),
        "lead_over_regions": _lead(own, others.max(axis=1)),
        "lead_over_sentences": _lead(own, columns.max(axis=1)),
    }
    if scores.agreement is not None:
        found[AGREEMENT] = scores.agreement[rows, best].astype(np.float64)
    return found


def support_evidence(scores: Scores, sentences: Sequence[Sentence]) -> Evidence:
    """Compute the evidence that each sentence is true of the image.

    Its highest cosine with a region or the whole image; that with the whole image; how sure the
    captioner was of its tokens, on average and at the least (NaN where it did not say).
    """
    found = {
        "closest": np.maximum(scores.similarity.max(axis=1), scores.image_similarity),
        "image": scores.image_similarity,
    }
    for name in LOGPROBS:
        values = [getattr(sentence, name) for sentence in sentences]
        found[name] = np.array([np.nan if v is None else v for v in values])
    return {name: values.astype(np.float64) for name, values in found.items()}


def _lead(chosen: np.ndarray, next_best: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(next_best), chosen - next_best, 0.0)


def stacked(found: Sequence[Evidence], names: Sequence[str]) -> np.ndarray:
    """Evidence of several samples as rows [N, K]."""
    return np.concatenate([np.column_stack([each[name] for name in names]) for each in found])
