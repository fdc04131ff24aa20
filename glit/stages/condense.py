"""Condense: a short caption of every image, written from its long one by a language model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from glit.data.captions import SHORT, captions_with, text_of_kind, with_short
from glit.data.records import Drop, Sample
from glit.data.schema import ABOUT_CAPTIONS, CAPTIONS
from glit.models.backends.base import Backend
from glit.models.backends.captioners import LANGUAGE_MODELS
from glit.models.backends.protocols import (
    ContinuousCaptioner,
    RawCaption,
    Usage,
    WriterConfig,
    usage_of,
)
from glit.plain import limited
from glit.recipes.config import Choice
from glit.stages.asking import SECOND_TRY_TEMPERATURE, Request, Talk, asked, without_text
from glit.stages.base import Outcome, Stage
from glit.stages.image_source import ImageSource
from glit.stages.plan import Plan, Recipe
from glit.storage.members import is_utf8
from glit.text.condensed import condensed_text, invented_words
from glit.text.faults import caption_fault
from glit.text.sentences import make_splitter
from glit.text.spans import Span
from glit.text.structured import plain_answer

SOURCE = "condensed"
"""The source of a short caption that a language model wrote from the long one."""
_INSTRUCTION = """\
Shorten this description of an image to one sentence of at most {words} words. Keep the main \
objects and what they do or how they stand to each other. Use words of the description, and add \
nothing. Answer with the sentence alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CondenseConfig(WriterConfig):
    """Short captions from long ones, by a language model."""

    table: ClassVar[str] = "condense"
    enabled: bool = False
    """True gives images without a caption of the kind ``short`` one that is condensed from
    ``caption``; needs the extra ``punkt``."""
    backend: str = "endpoint"
    """``endpoint`` or ``vllm``; language models and captioners alike."""
    model: str = "Qwen/Qwen3-4B-Instruct-2507"
    """The model: a hub id or a folder; for endpoints the served name."""
    max_words: int = limited(25, least=1)
    """Longest short caption, in words; a longer answer is asked for once more."""
    instruction: str = ""
    """The instruction before the caption; empty asks for one sentence, in English."""
    options: Any = None
    """Keys of the backend's own."""
    choice: ClassVar[Choice] = Choice(
        key="backend", options=lambda: {name: b.options for name, b in LANGUAGE_MODELS.items()}
    )


class CondenseStage(Stage):
    """Asks a language model for a short caption, and once more if the answer cannot be used. After
    that the first sentence is taken. The ``source`` of the caption says which of the two it is.

    A sample for which the model fails with an error twice is dropped as ``model_error``, so that a
    server that refuses every request does not go unnoticed.
    """

    name = "condense"
    version = 1
    reads = ("caption",)
    makes = ("captions",)
    title, shows, role = "Short captions", "model", "condenser"
    config = CondenseConfig
    columns = dataset_columns = (CAPTIONS,)
    about = ABOUT_CAPTIONS
    extends = ("captions",)

    def __init__(
        self,
        config: CondenseConfig,
        model: ContinuousCaptioner,
        *,
        language: str,
        splitter: Callable[[str], list[Span]],
    ) -> None:
        self._config = config
        self._model = model
        self._language = language
        self._splitter = splitter
        self._instruction = config.instruction or _INSTRUCTION.format(words=config.max_words)

    @classmethod
    def backend(cls, config: CondenseConfig) -> Backend:
        return LANGUAGE_MODELS[config.backend]

    @classmethod
    def extras(cls, recipe: Recipe) -> Mapping[str, str]:
        return {**super().extras(recipe), "punkt": "condense.enabled = true"}

    @classmethod
    def identity(cls, plan: Plan) -> Mapping[str, Any]:
        split = plan.recipe.split
        return {**super().identity(plan), "splitter": [split.splitter, split.language]}

    @classmethod
    def open(cls, plan: Plan) -> CondenseStage:
        config, split = plan.config(CondenseConfig), plan.recipe.split
        model = cls.backend(config).make(config, plan.models.get(cls.role), "")
        splitter = make_splitter(split.splitter, split.language)
        return cls(config, model, language=split.language, splitter=splitter)

    def usage(self) -> Usage:
        return usage_of(self._model)

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        return asked(samples, self._talk)

    def _talk(self, sample: Sample) -> Talk:
        outcome: Outcome = sample
        remark = None if _has_short(sample) else ""
        for attempt in (0, 1):
            if remark is not None:
                [raw] = yield [self._request(sample, remark, attempt)]
                if isinstance(raw := without_text(raw), Drop):
                    outcome, remark = dataclasses.replace(raw, attempt=attempt), ""
                else:
                    outcome, remark = self._outcome(sample, raw)
        return outcome

    def _request(self, sample: Sample, remark: str, attempt: int) -> Request:
        assert sample.caption is not None
        parts = filter(None, [self._instruction, remark, sample.caption.text])
        return Request(
            model=self._model.asking("\n\n".join(parts)),
            temperature=SECOND_TRY_TEMPERATURE * attempt,
            attempt=attempt,
        )

    def _outcome(self, sample: Sample, raw: RawCaption) -> tuple[Sample, str | None]:
        """The sample with its short caption, and what the model is told if it is asked once more;
        None where it is not."""
        found = plain_answer(
            raw.text, structured=self._config.structured, tokens=raw.control_tokens
        )
        text = condensed_text(found.text if found and not found.lost else "")
        remark = "" if raw.cut or not is_utf8(text) else self._fault(sample, text)
        if remark is None:
            return captions_with(sample, SHORT, text, SOURCE), None
        return with_short(sample, self._splitter), remark

    def _fault(self, sample: Sample, text: str) -> str | None:
        """Return a remark for the model on its answer, which may be empty; None for a good
        answer."""
        assert sample.caption is not None
        if caption_fault(text, language=self._language):
            return ""
        if len(text.split()) > self._config.max_words:
            return f"Use at most {self._config.max_words} words."
        if invented := invented_words(text, sample.caption.text, self._language):
            return f"Do not use these words: {', '.join(invented)}."
        return None


def _has_short(sample: Sample) -> bool:
    return text_of_kind(sample.extra.get("captions"), SHORT) is not None
