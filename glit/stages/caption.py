"""Caption: a long description per image, by a model or by the user, checked before it is kept."""

from __future__ import annotations

import dataclasses
import hashlib
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from PIL import Image

from glit.data import rows
from glit.data.captions import SHORT, too_long, with_provided, with_short, with_written
from glit.data.records import Caption, Drop, Sample, Token
from glit.data.schema import ABOUT_CAPTIONS, CAPTION_SOURCE, CAPTIONS, TOKEN
from glit.errors import UserError
from glit.images import Pixels
from glit.models.backends.base import Backend
from glit.models.backends.captioners import CAPTIONERS
from glit.models.backends.captioners.enlarging import limited_size
from glit.models.backends.protocols import (
    CaptionerConfig,
    CaptionLookup,
    RawCaption,
    Usage,
    usage_of,
)
from glit.plain import limited
from glit.recipes.config import Choice, file_name, require_value
from glit.stages.asking import (
    SECOND_TRY_TEMPERATURE,
    Answer,
    InBatches,
    Model,
    Request,
    Talk,
    asked,
)
from glit.stages.base import Outcome, Stage
from glit.stages.given_captions import look_up
from glit.stages.image_source import ImageSource
from glit.stages.plan import Plan
from glit.storage.members import is_utf8
from glit.text.faults import caption_fault, repeats_marks, says_unseen
from glit.text.sentences import make_splitter
from glit.text.spans import Span
from glit.text.structured import plain_answer

_RETRIED = ("empty_caption", "refusal", "looping", "wrong_language", "garbled_caption")
_TEXT_ONLY_AFTER = 3
"""First answers that all say that no image came, and stop the build."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionConfig(CaptionerConfig):
    """The source of the long captions."""

    backend: str = "transformers"
    """``vllm``, ``endpoint`` and ``transformers`` write captions; ``provided`` reads --captions
    FILE; ``sidecar`` reads NAME.txt beside the image."""
    prompt: str = file_name("")
    """A prompt file; empty takes glit's prompt (pipelines/prompts/describe.txt)."""
    temperature: float = limited(0.0, least=0)
    """Sampling temperature; 0 is greedy. The second try after a bad caption always samples, at
    0.7."""
    short: Literal["", "first_sentence"] = ""
    """The source of a caption of the kind ``short`` besides ``kinds``: ``first_sentence`` takes
    that of ``caption``, without a model, for images that have no short one; empty adds none."""
    options: Any = None
    """Keys of the backend's own."""
    choice: ClassVar[Choice] = Choice(
        key="backend", options=lambda: {name: b.options for name, b in CAPTIONERS.items()}
    )

    def check(self) -> None:
        CaptionerConfig.check(self)
        require_value(
            not (self.short and SHORT in self.kinds and self.backend != "provided"),
            f"[caption] short: {self.backend!r} writes a short caption of every image, as kinds "
            "asks for; leave one of the two out",
        )
        require_value(
            not self.structured or self.backend in ("vllm", "endpoint"),
            f"[caption] structured: {self.backend!r} cannot be made to answer with JSON; take vllm "
            "or endpoint, or leave it out",
        )
        require_value(
            not self.kinds or self.backend != "sidecar",
            "[caption] kinds: backend = 'sidecar' has one caption an image; 'provided' brings "
            "several, and models write several",
        )


class CaptionStage(Stage):
    """A caption for every image."""

    name = "caption"
    version = 3
    reads = ("image",)
    makes = ("caption",)
    retryable = True
    title, role = "Captions", "captioner"
    about = ABOUT_CAPTIONS
    config = CaptionConfig
    columns = (
        ("caption", pa.string()),
        ("caption_source", CAPTION_SOURCE),
        ("caption_tokens", pa.list_(TOKEN)),
    )

    @classmethod
    def chosen(cls, config: CaptionConfig) -> type[CaptionStage]:
        return KeepCaptions if config.kinds or config.short else cls

    @classmethod
    def backend(cls, config: CaptionConfig) -> Backend:
        return CAPTIONERS[config.backend]

    @classmethod
    def identity(cls, plan: Plan) -> Mapping[str, Any]:
        """Captions that the token limit cut are trimmed by the splitter.

        Captions of a file are no part of it: the listing tells of them image by image.
        """
        model = plan.models.get("captioner")
        return {
            "model": model.identity() if model else {},
            "prompt": plan.prompt,
            "splitter": [plan.recipe.split.splitter, plan.recipe.split.language],
            **({"prompts": dict(plan.further_prompts)} if plan.further_prompts else {}),
            **limited_size(model, plan.recipe.caption.max_image_side),
        }

    @classmethod
    def drops_before_models(cls, plan: Plan) -> bool:
        return cls.backend(plan.config(CaptionConfig)).reads != "pixels"

    @classmethod
    def open(cls, plan: Plan) -> CaptionStage:
        config = plan.config(CaptionConfig)
        backend = cls.backend(config)
        splitter = make_splitter(plan.recipe.split.splitter, plan.recipe.split.language)
        if backend.reads != "pixels":
            return LookUpCaptions(backend.make(plan.brought), splitter if config.short else None)
        model = plan.models.get("captioner")
        return WriteCaptions(
            config,
            backend.make(config, model, plan.prompt),
            prompts={"": plan.prompt, **plan.further_prompts},
            revision=model.revision if model else "",
            splitter=splitter,
            language=plan.recipe.split.language,
        )

    @classmethod
    def row(cls, sample: Sample) -> dict[str, Any]:
        assert sample.caption is not None
        tokens = rows.token_rows(sample.caption)
        return {
            **rows.caption_row(sample.caption),
            "caption_tokens": tokens,
            "captions": sample.extra.get("captions"),
        }

    @classmethod
    def with_row(cls, sample: Sample, row: Mapping[str, Any]) -> Sample:
        tokens = rows.tokens(row.get("caption_tokens"))
        return dataclasses.replace(
            sample, caption=dataclasses.replace(rows.caption(row), tokens=tokens)
        )


class KeepCaptions(CaptionStage):
    """With a column ``captions``, where images have several."""

    dataset_columns = (CAPTIONS,)
    columns = (*CaptionStage.columns, *dataset_columns)

    @classmethod
    def with_row(cls, sample: Sample, row: Mapping[str, Any]) -> Sample:
        extra = {**sample.extra, "captions": row["captions"]}
        return dataclasses.replace(super().with_row(sample, row), extra=extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What one kind of caption is written by."""

    model: Model
    prompt: str
    prompt_sha256: str


class WriteCaptions(CaptionStage):
    """Asks the captioner, checks the captions, and asks once more where one fails.

    With several kinds there is a request for each, and the first becomes ``caption``. An image for
    which one of them cannot be used is dropped, so that a retry asks again.

    Args:
        config: of the stage.
        captioner: the model, with the first of the prompts.
        prompts: by the kinds of captions, the first one's under an empty name.
        revision: of the model.
        splitter: finds the sentences of captions.
        language: of the captions.
    """

    def __init__(
        self,
        config: CaptionConfig,
        captioner: Any,
        *,
        prompts: Mapping[str, str],
        revision: str,
        splitter: Callable[[str], list[Span]],
        language: str,
    ) -> None:
        self._config = config
        self._language = language
        self._captioner = captioner
        self._splitter = splitter
        self._revision = revision
        self._unseen: int | None = 0
        self._asked: list[_Asked] = []
        for kind, prompt in prompts.items():
            view = captioner.asking(prompt) if kind else captioner
            model = view if hasattr(view, "submit") else InBatches(view, config.batch_size)
            digest = hashlib.sha256(prompt.encode()).hexdigest()
            self._asked.append(_Asked(model=model, prompt=prompt, prompt_sha256=digest))

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        return asked(samples, self._talk, images, reason="captioner_error")

    def usage(self) -> Usage:
        return usage_of(self._captioner)

    def _talk(self, sample: Sample) -> Talk:
        outcomes: dict[int, Outcome] = {}
        numbers = range(len(self._asked))
        for attempt in (0, 1):
            todo = [n for n in numbers if not attempt or is_worth_retrying(outcomes[n])]
            answers = yield [self._request(self._asked[n], attempt) for n in todo]
            for number, answer in zip(todo, answers, strict=True):
                of = self._asked[number]
                outcomes[number] = self._checked(sample, of, answer, attempt)
        made = outcomes[0]
        if self._config.kinds:
            made = sample
            for kind, number in zip(self._config.kinds, numbers, strict=True):
                if isinstance(made, Sample):
                    made = with_written(made, outcomes[number], kind)
        if self._config.short and isinstance(made, Sample):
            return with_short(made, self._splitter)
        return made

    def _request(self, of: _Asked, attempt: int) -> Request:
        wanted = self._config.temperature
        return Request(
            model=of.model,
            temperature=max(SECOND_TRY_TEMPERATURE, wanted) if attempt else wanted,
            attempt=attempt,
            see=partial(_shrunk, max_side=self._config.max_image_side),
        )

    def _checked(self, sample: Sample, of: _Asked, answer: Answer, attempt: int) -> Outcome:
        """The sample with its caption, or why it cannot be used."""
        if isinstance(answer, Drop):
            return dataclasses.replace(answer, attempt=attempt)
        found = plain_answer(
            answer.text, structured=self._config.structured, tokens=answer.control_tokens,
            prompt=of.prompt,
        )  # fmt: skip
        unseen = says_unseen(answer.text if found is None else found.text)
        if not attempt:
            self._note_unseen(unseen)
        if found is None and unseen:
            message = f"the captioner said: {answer.text[:120]!r}"
            return Drop(reason="refusal", message=message, attempt=attempt)
        if found is None:
            wants = "caption.structured wants JSON" if self._config.structured else "want a text"
            message = f"{wants}, the captioner said: {answer.text[:120]!r}"
            return Drop(reason="captioner_error", message=message, attempt=attempt)
        if found.lost:
            message = f"{found.lost!r} stands for words of the caption: {found.text[:120]!r}"
            return Drop(reason="garbled_caption", message=message, attempt=attempt)
        text = found.text
        if not is_utf8(text):
            message = "the captioner said half a character (a lone surrogate)"
            return Drop(reason="captioner_error", message=message, attempt=attempt)
        if fault := too_long([text]):
            return dataclasses.replace(fault, attempt=attempt)
        loops = repeats_marks(text)
        text = unicodedata.normalize("NFC", text).strip()
        if answer.cut and text:
            whole = trim_to_sentence(text, self._splitter)
            if not whole and not loops:
                message = f"the token limit cut the first sentence: {text[:120]!r}; raise "
                message += "caption.max_tokens"
                return Drop(reason="empty_caption", message=message, attempt=attempt)
            text = whole or text
        fault = caption_fault(text, language=self._language)
        if fault := "looping" if loops and fault not in ("refusal", "empty_caption") else fault:
            said = f"said: {text[:120]!r}" if text or not answer.text else "only thought"
            return Drop(reason=fault, message=f"the captioner {said}", attempt=attempt)
        caption = Caption(
            text=text,
            kind=self._config.backend,
            model=self._config.model,
            revision=self._revision,
            prompt_sha256=of.prompt_sha256,
            trimmed=answer.cut,
            tokens=_tokens_within(answer, text),
        )
        return dataclasses.replace(sample, caption=caption)

    def _note_unseen(self, unseen: bool) -> None:
        """Count the first answers, as long as they all say that no image is there.

        Raises:
            UserError: the model sees no images.
        """
        if self._unseen is None:
            return
        self._unseen = self._unseen + 1 if unseen else None
        if self._unseen == _TEXT_ONLY_AFTER:
            self._unseen = None
            raise UserError(
                f"caption.model {self._config.model!r}: its first {_TEXT_ONLY_AFTER} answers say "
                "that no image came; the model, or the server before it, is text-only: take a "
                "model that sees images"
            )


class LookUpCaptions(CaptionStage):
    """Takes the user's own captions; they are trusted, only emptiness is a fault.

    Args:
        lookup: finds them.
        short_by: finds the sentences of captions, of which the first is a short one for images
            that have none; None adds none.
    """

    def __init__(
        self, lookup: CaptionLookup, short_by: Callable[[str], list[Span]] | None = None
    ) -> None:
        self._lookup, self._short_by = lookup, short_by

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        found = look_up(self._lookup, samples, images)
        for sample, texts in zip(samples, found, strict=True):
            if isinstance(texts, Drop):
                yield texts
                continue
            strip = self._lookup.strips
            made = with_provided(sample, texts, name=self._lookup.name, strip=strip)
            if self._short_by is not None and isinstance(made, Sample):
                made = with_short(made, self._short_by)
            yield made


def is_worth_retrying(outcome: Outcome) -> bool:
    """Return whether the model may answer better when it is asked once more."""
    return isinstance(outcome, Drop) and outcome.reason in _RETRIED


def trim_to_sentence(text: str, splitter: Callable[[str], list[Span]]) -> str:
    """The text up to its last sentence that ends in a full stop or the like, else up to the last
    one but one; empty if there is a single one."""
    spans = splitter(text)
    for _, end in reversed(spans):
        if text[:end].rstrip("\"'”’)»").endswith((".", "!", "?", "…", "。", "！", "？", "।")):
            return text[:end]
    return text[: spans[-2][1]] if len(spans) > 1 else ""


def _tokens_within(answer: RawCaption, text: str) -> tuple[Token, ...] | None:
    """The tokens of the caption as it is kept: without the blanks around it and what was cut."""
    start = answer.text.rfind(text)  # a thought before it may hold the same words
    if answer.tokens is None or start < 0:  # other characters after normalisation
        return None
    return tuple(
        Token(char_end=min(each.char_end - start, len(text)), logprob=each.logprob)
        for each, before in zip(answer.tokens, (None, *answer.tokens), strict=False)
        if each.char_end > start and (before is None or before.char_end < start + len(text))
    )


def _shrunk(image: Pixels, max_side: int) -> Pixels:
    longest = max(image.shape[:2])
    if not max_side or longest <= max_side:
        return image
    picture = Image.fromarray(image)
    scale = max_side / longest
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    return np.array(picture.resize(size, Image.Resampling.BICUBIC))
