"""Scores and regions of a made-up sample."""

from __future__ import annotations

import numpy as np

from glit.data.records import Box, Region, Scores, Sentence


def regions(*sources: str) -> tuple[Region, ...]:
    return tuple(
        Region(box=Box(x0=k, y0=0, x1=k + 1, y1=1), score=1.0, label="", source=source)
        for k, source in enumerate(sources)
    )


def scored(similarity, whole=None, phrases=None) -> Scores:
    similarity = np.array(similarity, dtype=np.float32)
    whole = np.zeros(len(similarity)) if whole is None else np.array(whole)
    return Scores(
        similarity=similarity,
        image_similarity=whole.astype(np.float32),
        phrase_similarity=None if phrases is None else np.array(phrases, dtype=np.float32),
    )


def sentence(text: str, **more) -> Sentence:
    """A sentence that is the whole caption, in the window of the tokenizer."""
    given = {"token_start": 1, "token_end": 4, "in_window": True, "truncated": False, **more}
    return Sentence(text=text, char_start=0, char_end=len(text), **given)


def sentences(*logprobs: float | None) -> tuple[Sentence, ...]:
    """One a number: its mean and lowest logarithm; None for a captioner that did not say."""
    return tuple(sentence("A thing.", mean_logprob=each, min_logprob=each) for each in logprobs)
