"""Questions to a language model, many at a time, and what it answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from glit.backends.protocols import ContinuousCaptioner, RawCaption
from glit.data.records import Drop, Sample
from glit.stages.base import isolate
from glit.text.structured import Keys

SECOND_TRY_TEMPERATURE = 0.7
_NO_TEXT = ("empty_caption", "refusal")
"""Answers without a text; what follows is the stage's to say, as with one that it cannot use."""
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextQuestion:
    """A question to a language model about a sample."""

    sample: Sample
    prompt: str
    """The whole of it."""
    keys: Keys | None = None
    """Keys of the JSON object that it must answer with, () for plain text; None as its
    configuration says."""


def answers(
    model: ContinuousCaptioner, questions: Mapping[Key, TextQuestion], *, attempt: int
) -> dict[Key, RawCaption | Drop]:
    """Return the model's answer to each question; a drop where it fails with an error.

    Args:
        model: takes texts without an image.
        questions: by any key.
        attempt: 0 answers greedily, 1 samples by a seed of the sample.

    Raises:
        GlitError: what concerns all questions, such as a server that refuses the key.
    """
    asked: dict[Key, Future[RawCaption]] = {}
    try:
        for key, each in questions.items():
            asked[key] = model.asking(each.prompt, each.keys).submit(
                None,
                seed=(int(each.sample.sample_id[:8], 16) + attempt) & 0x7FFF_FFFF,
                temperature=SECOND_TRY_TEMPERATURE * attempt,
            )
        return {key: _answer(each, attempt) for key, each in asked.items()}
    finally:
        for each in asked.values():
            each.cancel()


def _answer(asked: Future[RawCaption], attempt: int) -> RawCaption | Drop:
    [answer] = isolate([asked], lambda each: [each[0].result()])
    if not isinstance(answer, Drop):
        return answer
    if answer.reason in _NO_TEXT:
        return RawCaption(text="", cut=False)
    return dataclasses.replace(answer, attempt=attempt)
