"""Condense: a short caption of every image, written from its long one by a language model."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, ClassVar

from glit.backends.base import Backend
from glit.backends.captioners import LANGUAGE_MODELS
from glit.backends.protocols import ContinuousCaptioner, RawCaption, WriterConfig
from glit.data.captions import SHORT, captions_with, text_of_kind, with_short
from glit.data.records import Sample
from glit.data.schema import CAPTIONS
from glit.errors import GlitError
from glit.recipes.config import Choice, require_value
from glit.runtime.gpu_errors import ruins_process
from glit.shards import is_utf8
from glit.stages.base import Outcome, Stage
from glit.stages.image_source import ImageSource
from glit.stages.plan import Plan, Recipe
from glit.text.condensed import condensed_text, invented_words
from glit.text.faults import caption_fault
from glit.text.sentences import make_splitter
from glit.text.spans import Span
from glit.text.thoughts import without_thoughts

SOURCE = "condensed"
"""The source of a short caption that a language model wrote from the long one."""
SECOND_TRY_TEMPERATURE = 0.7
_INSTRUCTION = """\
Shorten this description of an image to one sentence of at most {words} words. Keep the main \
objects and what they do or how they stand to each other. Use words of the description, and add \
nothing. Answer with the sentence alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CondenseConfig(WriterConfig):
    """Short captions from long ones, by a language model."""

    table: ClassVar[str] = "condense"
    enabled: bool = False
    """Whether images without a caption of the kind ``short`` get one that is condensed from
    ``caption``; needs the extra ``punkt``."""
    backend: str = "endpoint"
    """``endpoint`` or ``vllm``; language models and captioners alike."""
    model: str = "Qwen/Qwen3-4B-Instruct-2507"
    """The model: a hub id or a folder; for endpoints the served name."""
    max_words: int = 25
    """Longest short caption, in words; a longer answer is asked for once more."""
    instruction: str = ""
    """What is said before the caption; empty asks for one sentence, in English."""
    options: Any = None
    """Keys of the backend's own."""
    choice: ClassVar[Choice] = Choice(
        key="backend", options=lambda: {name: b.options for name, b in LANGUAGE_MODELS.items()}
    )

    def __post_init__(self) -> None:
        WriterConfig.__post_init__(self)
        require_value(
            self.max_words >= 1, f"[condense] max_words: found {self.max_words}, want >= 1"
        )


class CondenseStage(Stage):
    """Asks for a short caption, once more where it cannot be used, and then takes the first
    sentence; ``source`` says which it is."""

    name = "condense"
    version = 1
    reads = ("caption",)
    makes = ("captions",)
    title, role = "Short captions", "condenser"
    config = CondenseConfig
    columns = dataset_columns = (CAPTIONS,)
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

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        todo = {at: sample for at, sample in enumerate(samples) if not _has_short(sample)}
        made = list(samples)
        asked = {at: self._ask(sample, "", 0) for at, sample in todo.items()}
        again: dict[int, Future[RawCaption]] = {}
        try:
            for at, answer in asked.items():
                text, fault = self._read(todo[at], answer)
                if fault is None:
                    made[at] = captions_with(todo[at], SHORT, text, SOURCE)
                else:
                    again[at] = self._ask(todo[at], fault, 1)
            for at, answer in again.items():
                text, fault = self._read(todo[at], answer)
                made[at] = (
                    captions_with(todo[at], SHORT, text, SOURCE)
                    if fault is None
                    else with_short(todo[at], self._splitter)
                )
        finally:
            for answer in (*asked.values(), *again.values()):
                answer.cancel()
        return iter(made)

    def _ask(self, sample: Sample, remark: str, attempt: int) -> Future[RawCaption]:
        assert sample.caption is not None
        parts = [self._instruction, remark, sample.caption.text]
        return self._model.asking("\n\n".join(filter(None, parts))).submit(
            None,
            seed=(int(sample.sample_id[:8], 16) + attempt) & 0x7FFF_FFFF,
            temperature=SECOND_TRY_TEMPERATURE * attempt,
        )

    def _read(self, sample: Sample, answer: Future[RawCaption]) -> tuple[str, str | None]:
        """The short caption, and what the model is told if it cannot be used, else None."""
        try:
            raw = answer.result()
        except GlitError:
            raise
        except Exception as error:
            if ruins_process(error):
                raise
            return "", ""
        if not is_utf8(raw.text):
            return "", ""
        text = condensed_text(unicodedata.normalize("NFC", without_thoughts(raw.text)))
        assert sample.caption is not None
        if raw.cut or caption_fault(text, language=self._language):
            return text, ""
        if len(text.split()) > self._config.max_words:
            return text, f"Use at most {self._config.max_words} words."
        if invented := invented_words(text, sample.caption.text, self._language):
            return text, f"Do not use these words: {', '.join(invented)}."
        return text, None


def _has_short(sample: Sample) -> bool:
    return text_of_kind(sample.extra.get("captions"), SHORT) is not None
