"""Negatives: false sentences of every sentence, for objectives that learn from them, and for
``glit eval robustness``.

By rule, words are exchanged with a lexicon (:mod:`glit.text.negatives`): no model and no image. Or
a language model changes the sentences (:mod:`glit.text.written_negatives`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from glit.data.records import Drop, Sample
from glit.data.schema import NEGATIVE
from glit.models.backends.base import Backend
from glit.models.backends.captioners import LANGUAGE_MODELS
from glit.models.backends.protocols import ContinuousCaptioner, RawCaption, WriterConfig
from glit.plain import limited
from glit.recipes.config import Choice, require_value
from glit.stages.asking import SECOND_TRY_TEMPERATURE, Request, Talk, asked, without_text
from glit.stages.base import Outcome, Stage
from glit.stages.image_source import ImageSource
from glit.stages.plan import Plan, Recipe
from glit.storage.members import is_utf8
from glit.text.negatives import negatives
from glit.text.structured import texts_in_json
from glit.text.written_negatives import CHANGES, question, usable

RULES = "rules"


@dataclass(frozen=True, slots=True, kw_only=True)
class NegativesConfig(WriterConfig):
    """False sentences, for training and for ``glit eval robustness``."""

    table: ClassVar[str] = "negatives"
    enabled: bool = False
    """True gives the dataset a column ``negatives``."""
    backend: str = RULES
    """``rules`` exchanges words and needs the extra ``phrases``; ``endpoint`` and ``vllm`` ask a
    language model."""
    per_sentence: int = limited(8, least=1)
    """Largest number of false sentences that ``rules`` make of one sentence. The kinds attribute,
    count, object, position and relation take turns."""
    kinds: tuple[str, ...] = ("attribute", "negation", "addition")
    """Kinds of false sentences, one sentence of each, that a language model is asked for:
    ``attribute``, ``count``, ``object``, ``position``, ``relation``, ``negation``, ``addition``."""
    model: str = "Qwen/Qwen3-4B-Instruct-2507"
    """The language model: a hub id or a folder; for endpoints the served name."""
    structured: bool = True
    """True tells the server or engine the JSON schema of its answers; false for servers that know
    no ``response_format``."""
    options: Any = None
    """Keys of the backend's own."""
    choice: ClassVar[Choice] = Choice(
        key="backend",
        options=lambda: {RULES: None, **{name: b.options for name, b in LANGUAGE_MODELS.items()}},
    )

    def check(self) -> None:
        WriterConfig.check(self)
        require_value(
            0 < len(self.kinds) == len(set(self.kinds) & set(CHANGES)),
            f"[negatives] kinds: found {list(self.kinds)}, want different ones of "
            f"{', '.join(CHANGES)}",
        )


class NegativesStage(Stage):
    """Makes false sentences; the same sentence of the same image always gets the same ones."""

    name = "negatives"
    version = 4
    reads = ("sentences",)
    makes = ("negatives",)
    title, shows, role = "False sentences", "backend", "rewriter"
    config = NegativesConfig
    columns = dataset_columns = (("negatives", pa.list_(NEGATIVE)),)
    about: ClassVar = {
        "negatives": "False sentences: numbers of the true ones, and what was changed"
    }

    def __init__(self, most: int) -> None:
        self._most = most

    @classmethod
    def backend(cls, config: NegativesConfig) -> Backend | None:
        return LANGUAGE_MODELS.get(config.backend)

    @classmethod
    def extras(cls, recipe: Recipe) -> Mapping[str, str]:
        if recipe.of(NegativesConfig).backend == RULES:
            return {"phrases": "negatives.enabled = true"}
        return super().extras(recipe)

    @classmethod
    def identity(cls, plan: Plan) -> Mapping[str, Any]:
        if plan.config(NegativesConfig).backend == RULES:
            return {}
        return {**super().identity(plan), "language": plan.recipe.split.language}

    @classmethod
    def open(cls, plan: Plan) -> Stage:
        config = plan.config(NegativesConfig)
        backend = cls.backend(config)
        if backend is None:
            return cls(config.per_sentence)
        model = backend.make(config, plan.models.get(cls.role), "")
        return WrittenNegatives(config, model, language=plan.recipe.split.language)

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        for sample in samples:
            caption = _sentences(sample)
            yield _with_negatives(
                sample,
                [
                    (number, false.kind, false.text)
                    for number, text in enumerate(caption)
                    for false in negatives(
                        text, caption, most=self._most, draw=_draw(sample.sample_id, text)
                    )
                ],
            )


class WrittenNegatives(NegativesStage):
    """Asks a language model for one false sentence of each kind. Asks once more for the kinds whose
    answer cannot be used, then leaves them out.

    A sample is dropped as ``model_error`` if the model fails with an error twice, or if nothing
    that it answers about it is JSON, so that a model that cannot do the task is noticed.
    """

    def __init__(
        self, config: NegativesConfig, model: ContinuousCaptioner, *, language: str
    ) -> None:
        self._config = config
        self._model = model
        self._language = language

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        return asked(samples, self._talk)

    def _talk(self, sample: Sample) -> Talk:
        caption = _sentences(sample)
        found: list[dict[str, str]] = [{} for _ in caption]
        failed, no_json, is_json = dict[int, Drop](), None, False
        for attempt in (0, 1):
            missing = {n: kinds for n, of in enumerate(found) if (kinds := self._missing(of))}
            answers = yield [
                self._request(sample, caption[n], kinds, attempt) for n, kinds in missing.items()
            ]
            for (number, kinds), answer in zip(missing.items(), answers, strict=True):
                if isinstance(answer := without_text(answer), Drop):
                    if number in failed:
                        return dataclasses.replace(answer, attempt=attempt)
                    failed[number] = answer
                    continue
                texts = {k: v for k, v in texts_in_json(answer.text).items() if is_utf8(v)}
                is_json |= bool(texts)
                no_json = no_json if texts else _no_json(answer, attempt)
                known = [*caption, *found[number].values()]
                found[number] |= usable(
                    texts, caption[number], known, kinds, language=self._language
                )
        if no_json is not None and not is_json:
            return no_json
        made = [
            (number, kind, texts[kind])
            for number, texts in enumerate(found)
            for kind in self._config.kinds
            if kind in texts
        ]
        return _with_negatives(sample, made)

    def _missing(self, found: Mapping[str, str]) -> list[str]:
        return [kind for kind in self._config.kinds if kind not in found]

    def _request(
        self, sample: Sample, sentence: str, kinds: Sequence[str], attempt: int
    ) -> Request:
        assert sample.caption is not None
        prompt = question(sentence, sample.caption.text, kinds)
        return Request(
            model=self._model.asking(prompt, kinds if self._config.structured else ()),
            temperature=SECOND_TRY_TEMPERATURE * attempt,
            attempt=attempt,
        )


def _no_json(answer: RawCaption, attempt: int) -> Drop:
    message = f"the language model was asked for JSON and said: {answer.text[:120]!r}"
    return Drop(reason="model_error", message=message, attempt=attempt)


def _sentences(sample: Sample) -> list[str]:
    assert sample.sentences is not None
    return [sentence.text for sentence in sample.sentences]


def _with_negatives(sample: Sample, made: Sequence[tuple[int, str, str]]) -> Sample:
    """The sample with false sentences: the number of the true one, the kind, the text."""
    rows = [{"sentence": number, "kind": kind, "text": text} for number, kind, text in made]
    return dataclasses.replace(sample, extra={**sample.extra, "negatives": rows})


def _draw(sample_id: str, sentence: str) -> random.Random:
    return random.Random(hashlib.sha256(f"{sample_id} {sentence}".encode()).digest())
