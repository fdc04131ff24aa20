"""Caption: a long description per image, by a model or by the user, checked before it is kept."""

from __future__ import annotations

import dataclasses
import hashlib
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from PIL import Image

from glit.backends.base import Backend
from glit.backends.captioners import CAPTIONERS
from glit.backends.captioners.enlarging import limited_size
from glit.backends.protocols import (
    Captioner,
    CaptionerConfig,
    CaptionLookup,
    ContinuousCaptioner,
    RawCaption,
    Usage,
    usage_of,
)
from glit.data import rows
from glit.data.captions import SHORT, too_long, with_provided, with_short, with_written
from glit.data.records import Caption, Drop, Sample, Token
from glit.data.schema import ABOUT_CAPTIONS, CAPTION_SOURCE, CAPTIONS, TOKEN
from glit.errors import UserError
from glit.images import Pixels
from glit.plain import limited
from glit.recipes.config import Choice, file_name, require_value
from glit.stages.base import Outcome, Stage, isolate
from glit.stages.captions_at_work import answered, is_worth_retrying
from glit.stages.given_captions import look_up
from glit.stages.image_source import ImageSource, loaded_batches
from glit.stages.plan import Plan
from glit.storage.members import is_utf8
from glit.text.faults import caption_fault, repeats_marks, says_unseen
from glit.text.sentences import make_splitter
from glit.text.spans import Span
from glit.text.structured import plain_answer

SECOND_TRY_TEMPERATURE = 0.7
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
            found = LookUpCaptions(backend.make(plan.brought))
            return AddShort(found, splitter) if config.short else found
        model = plan.models.get("captioner")
        captioner = backend.make(config, model, plan.prompt)
        asked = {"": plan.prompt, **plan.further_prompts}
        stages = [
            (StreamCaptions if backend.continuous else WriteCaptions)(
                config,
                captioner.asking(prompt) if kind else captioner,
                revision=model.revision if model else "",
                prompt=prompt,
                splitter=splitter,
                language=plan.recipe.split.language,
            )
            for kind, prompt in asked.items()
        ]
        written = WriteKinds(config.kinds, stages) if config.kinds else stages[0]
        return AddShort(written, splitter) if config.short else written

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


class WriteCaptions(CaptionStage):
    """Asks the captioner, checks the captions, and asks once more where one fails."""

    def __init__(
        self,
        config: CaptionConfig,
        captioner: Any,
        *,
        revision: str,
        prompt: str,
        splitter: Callable[[str], list[Span]],
        language: str,
    ) -> None:
        self._config = config
        self._language = language
        self._captioner = captioner
        self._splitter = splitter
        self._revision = revision
        self._prompt = prompt
        self._unseen: int | None = 0
        self._prompt_sha256 = hashlib.sha256(prompt.encode()).hexdigest()

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        for batch in loaded_batches(samples, images, self._config.batch_size):
            yield from self._batch(batch)

    def usage(self) -> Usage:
        return usage_of(self._captioner)

    def _batch(self, batch: list[tuple[Sample, Pixels | Drop]]) -> Iterator[Outcome]:
        outcomes: dict[int, Outcome] = {
            index: image for index, (_, image) in enumerate(batch) if isinstance(image, Drop)
        }
        for attempt in (0, 1):
            todo = [
                index
                for index in range(len(batch))
                if index not in outcomes or (attempt and is_worth_retrying(outcomes[index]))
            ]
            asked = [(*batch[index], attempt) for index in todo]
            if asked:
                answers = isolate(asked, self._ask, reason="captioner_error")
                for index, answer in zip(todo, answers, strict=True):
                    outcomes[index] = self.checked(batch[index][0], answer, attempt)
        return (outcomes[index] for index in range(len(batch)))

    def _ask(self, asked: Sequence[tuple]) -> list[RawCaption]:
        captioner: Captioner = self._captioner
        images = [_shrunk(image, self._config.max_image_side) for _, image, _ in asked]
        seeds = [_seed(sample, attempt) for sample, _, attempt in asked]
        return captioner.caption(images, seeds=seeds, temperature=self._temperature(asked[0][2]))

    def _temperature(self, attempt: int) -> float:
        wanted = self._config.temperature
        return max(SECOND_TRY_TEMPERATURE, wanted) if attempt else wanted

    def checked(self, sample: Sample, answer: RawCaption | Drop, attempt: int) -> Outcome:
        """The sample with its caption, or why it cannot be used."""
        if isinstance(answer, Drop):
            return dataclasses.replace(answer, attempt=attempt)
        found = plain_answer(
            answer.text, structured=self._config.structured, tokens=answer.control_tokens,
            prompt=self._prompt,
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
            prompt_sha256=self._prompt_sha256,
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


class StreamCaptions(WriteCaptions):
    """A :class:`WriteCaptions` for a captioner that takes images one by one."""

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        return (outcome for [outcome] in answered([self], samples, images))

    def submit(self, sample: Sample, image: Pixels, attempt: int) -> Future[RawCaption]:
        """Ask for a sample's caption."""
        captioner: ContinuousCaptioner = self._captioner
        return captioner.submit(
            _shrunk(image, self._config.max_image_side),
            seed=_seed(sample, attempt),
            temperature=self._temperature(attempt),
        )


class WriteKinds(CaptionStage):
    """Captions of several kinds by one model, a request for each; the first becomes ``caption``.

    An image for which one of them cannot be used is dropped, so that a retry asks again.
    """

    def __init__(self, kinds: Sequence[str], stages: Sequence[WriteCaptions]) -> None:
        self._kinds, self._stages = kinds, stages

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        for sample, outcomes in zip(samples, self._written(samples, images), strict=True):
            made: Outcome = sample
            for kind, outcome in zip(self._kinds, outcomes, strict=True):
                made = with_written(made, outcome, kind) if isinstance(made, Sample) else made
            yield made

    def usage(self) -> Usage:
        used = [stage.usage() for stage in self._stages]
        return Usage(*(sum(each) for each in zip(*used, strict=True)))

    def _written(
        self, samples: Sequence[Sample], images: ImageSource
    ) -> Iterator[Sequence[Outcome]]:
        """The outcome of each kind, by sample."""
        streams = [stage for stage in self._stages if isinstance(stage, StreamCaptions)]
        if len(streams) == len(self._stages):
            return answered(streams, samples, images)
        return zip(*(stage.process(samples, images) for stage in self._stages), strict=True)


class AddShort(CaptionStage):
    """Gives images without a caption of the kind ``short`` the first sentence of ``caption``."""

    def __init__(self, stage: CaptionStage, splitter: Callable[[str], list[Span]]) -> None:
        self._stage, self._splitter = stage, splitter

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        for outcome in self._stage.process(samples, images):
            yield with_short(outcome, self._splitter) if isinstance(outcome, Sample) else outcome

    def usage(self) -> Usage:
        return self._stage.usage()


class LookUpCaptions(CaptionStage):
    """Takes the user's own captions; they are trusted, only emptiness is a fault."""

    def __init__(self, lookup: CaptionLookup) -> None:
        self._lookup = lookup

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        found = look_up(self._lookup, samples, images)
        for sample, texts in zip(samples, found, strict=True):
            if isinstance(texts, Drop):
                yield texts
            else:
                strip = self._lookup.strips
                yield with_provided(sample, texts, name=self._lookup.name, strip=strip)


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


def _seed(sample: Sample, attempt: int) -> int:
    """Depends on the sample and the attempt alone, not on order or batch."""
    return (int(sample.sample_id[:8], 16) + attempt) & 0x7FFF_FFFF


def _shrunk(image: Pixels, max_side: int) -> Pixels:
    longest = max(image.shape[:2])
    if not max_side or longest <= max_side:
        return image
    picture = Image.fromarray(image)
    scale = max_side / longest
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    return np.array(picture.resize(size, Image.Resampling.BICUBIC))
