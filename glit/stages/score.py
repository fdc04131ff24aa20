"""Score: cosines of every sentence with every region and with the whole image.

FAST-GOAL Eq. 1 and GOAL section 3.1: class-token embeddings of crops and sentences, cosine. Rules
(:mod:`glit.rules`) make pairs of the stored cosines without the model.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from jaxtyping import Float

from glit.data import rows
from glit.data.geometry import Boxes, iou
from glit.data.records import Drop, Sample, Scores, Sentence
from glit.images import Pixels
from glit.inputs.lookup import UserTable
from glit.inputs.region_file import RegionOfFile, Said, placed, read_region_file
from glit.models.backends.base import Backend
from glit.models.backends.matchers import MATCHERS
from glit.models.backends.protocols import Matcher, MatcherConfig
from glit.plain import limited
from glit.recipes.config import Choice, is_enabled, require_value
from glit.stages.base import Outcome, Stage, isolate
from glit.stages.crop_views import CropView, grown, spotlights
from glit.stages.given_captions import GivenCaptions
from glit.stages.image_source import (
    MOST_BYTES,
    ImageSource,
    Loaded,
    num_bytes,
    read_files,
)
from glit.stages.plan import Plan, Recipe
from glit.text.phrases import head_phrases, head_span
from glit.text.spans import CleanText

SAME_IOU = 0.5
"""Overlap from which a grounding speaks for a region."""
AGREEMENT_DECIMALS = 4
SIMILARITY_DECIMALS = 5
"""Cosines are kept to this many decimals, well above the noise by which batching moves them."""

_MOST_SCALE = 8
_FILLED = {"cuda": 4}
"""Encoder batches that the crops of a group of images fill, by device; one elsewhere. The last of a
group is a small one, for which a GPU takes longer than its share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreConfig(MatcherConfig):
    """The model that compares regions with sentences."""

    backend: str = "clip"
    """``clip``: CLIP of any size, Long-CLIP, MetaCLIP 2, SigLIP or SigLIP 2; the
    checkpoint says which. ``file`` and ``provided``: no model; the files of these backends of
    ``propose`` name the sentences of each region."""
    phrases: bool = False
    """Also compare the head phrase of every sentence with the regions (see ``pair.phrase_weight``).
    This helps with sentences about two objects."""
    crop: CropView = "tight"
    """The view of a region: ``tight`` is its box; ``context`` adds a quarter on every side;
    ``blur`` is the whole image, blurred outside the box; ``dense`` takes the mean of the patches
    under the box of one pass over the image, for models that were trained to it."""
    dense_scale: float = limited(1.0, above=0, most=_MOST_SCALE)
    """With ``crop = "dense"``: the side at which the image is read, as a multiple of the model's
    own."""
    min_caption_similarity: float = limited(-1.0, least=-1, most=1)
    """Drop images whose cosine with the whole caption, cut to the text window, is lower. Above -1,
    it is kept as a column ``caption_similarity``; -0.99 drops next to nothing."""
    options: Any = None
    """Keys of the backend's own."""
    follows: ClassVar[str] = "propose"
    choice: ClassVar[Choice] = Choice(
        key="backend", options=lambda: {name: b.options for name, b in MATCHERS.items()}
    )

    def check(self) -> None:
        from_file, backend = is_from_file(self.backend), MATCHERS.get(self.backend)
        require_value(
            self.min_caption_similarity == -1 or not from_file,
            f"[score] min_caption_similarity: backend = {self.backend!r} compares nothing",
        )
        require_value(
            self.crop != "dense" or from_file or backend is None or backend.embeds_dense,
            f"[score] crop = 'dense': backend = {self.backend!r} does not embed regions in one "
            "pass over the image; take another crop or another backend",
        )


def is_from_file(backend: str) -> bool:
    """Return whether a value of ``score.backend`` reads pairs from files and compares nothing."""
    return backend in MATCHERS and MATCHERS[backend].reads == "file"


class ScoreStage(Stage):
    """Embeds the regions of several images together and all sentences of a chunk at once."""

    name = "score"
    version = 1
    reads = ("image", "sentences", "regions")
    makes = ("scores",)
    reasons: ClassVar = {
        "low_caption_similarity": "the caption resembles the image less than [score] wants"
    }
    title, role = "Similarity", "matcher"
    about: ClassVar = {"caption_similarity": "Cosine of the image and the whole caption"}
    config = ScoreConfig
    columns = (
        ("similarity", pa.list_(pa.float32())),
        ("image_similarity", pa.list_(pa.float32())),
        ("phrase_similarity", pa.list_(pa.float32())),
        ("agreement", pa.list_(pa.float32())),
    )

    def __init__(self, config: ScoreConfig, matcher: Matcher) -> None:
        self._config = config
        self._matcher = matcher

    @classmethod
    def chosen(cls, config: ScoreConfig) -> type[ScoreStage]:
        return ScoreCaptions if config.min_caption_similarity > -1 else cls

    @classmethod
    def backend(cls, config: ScoreConfig) -> Backend:
        return MATCHERS[config.backend]

    @classmethod
    def extras(cls, recipe: Recipe) -> Mapping[str, str]:
        phrases = {"phrases": "score.phrases = true"} if recipe.of(ScoreConfig).phrases else {}
        if is_enabled(recipe.ground) and cls.backend(recipe.of(ScoreConfig)).reads != "file":
            phrases = {"phrases": "ground.enabled = true", **phrases}
        return {**super().extras(recipe), **phrases}

    @classmethod
    def check_off(cls, config: ScoreConfig) -> None:
        require_value(
            config.min_caption_similarity == -1,
            "[score] min_caption_similarity: propose.enabled = false turns score off, so nothing "
            "would be dropped for it; leave one of the two out",
        )

    @classmethod
    def open(cls, plan: Plan) -> ScoreStage:
        config = plan.config(ScoreConfig)
        backend = cls.backend(config)
        if backend.reads == "file":
            return ReadPairs(config, plan.regions, GivenCaptions.of(plan))
        return cls(config, backend.make(config, plan.models.get("matcher")))

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        texts = [s.text for sample in samples for s in sample.sentences or ()]
        if self._config.phrases:
            texts = [each for pair in zip(texts, head_phrases(texts), strict=True) for each in pair]
        width = 1 + self._config.phrases  # texts a sentence: itself, its head phrase
        sentences = isolate(texts, lambda some: list(self._matcher.embed_sentences(some)))
        position = 0
        for group in self._groups(samples, images):
            good = [item for item in group if not isinstance(item[1], Drop)]
            found = iter(isolate(good, self._embed))
            for sample, image in group:
                number = width * len(sample.sentences or ())
                own = sentences[position : position + number]
                position += number
                regions = image if isinstance(image, Drop) else next(found)
                yield self._joined(sample, own, regions)

    def _joined(
        self, sample: Sample, sentences: list[np.ndarray | Drop], regions: np.ndarray | Drop
    ) -> Outcome:
        if isinstance(regions, Drop):
            return regions
        good = [each for each in sentences if not isinstance(each, Drop)]
        if len(good) < len(sentences):
            return next(each for each in sentences if isinstance(each, Drop))
        return self._finished(sample, np.stack(good), regions)

    def _groups(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[list[Loaded]]:
        """Images whose crops fill an encoder batch, on a GPU several; fewer large ones."""
        config = self._config
        # spotlights are whole pictures, one a region: no more of them than fill a batch
        batches = 1 if config.crop == "blur" else _FILLED.get(config.device, 1)
        wanted = config.batch_size * batches
        group: list[Loaded] = []
        crops = held = 0
        for sample, image in zip(samples, images.each(samples), strict=True):
            group.append((sample, image))
            crops += 1 if config.crop == "dense" else len(sample.regions or ()) + 1
            held += num_bytes(sample)
            if crops >= wanted or held >= MOST_BYTES:
                yield group
                group, crops, held = [], 0, 0
        if group:
            yield group

    def _embed(self, items: Sequence[tuple[Sample, Pixels | Drop]]) -> list[np.ndarray]:
        """Per image [R + 1, D]: its regions', then its own embedding."""
        if self._config.crop == "dense":
            return self._embed_dense(items)
        images: list[Pixels] = []
        boxes: list[Boxes] = []
        for sample, image in items:
            assert not isinstance(image, Drop)
            own = _region_boxes(sample)
            whole = np.array([[0, 0, sample.width, sample.height]], dtype=np.float64)
            if self._config.crop == "blur":
                shown = spotlights(image, own)
                images += shown
                boxes += [np.array([[0.0, 0.0, each.shape[1], each.shape[0]]]) for each in shown]
                own = own[:0]
            elif self._config.crop == "context":
                own = grown(own, width=sample.width, height=sample.height)
            images.append(image)
            boxes.append(np.concatenate([own, whole]))
        joined = np.concatenate(self._matcher.embed_regions(images, boxes))
        counts = [len(sample.regions or ()) + 1 for sample, _ in items]
        return np.split(joined, np.cumsum(counts)[:-1])

    def _embed_dense(self, items: Sequence[tuple[Sample, Pixels | Drop]]) -> list[np.ndarray]:
        """Embed regions as :meth:`_embed` does, in one pass over each image."""
        images = [image for _, image in items if not isinstance(image, Drop)]
        boxes = [_region_boxes(sample) for sample, _ in items]
        return self._matcher.embed_dense(images, boxes, scale=self._config.dense_scale)

    def _finished(self, sample: Sample, sentences: np.ndarray, regions: np.ndarray) -> Outcome:
        cosines = np.round(sentences.astype(np.float32) @ regions.T, SIMILARITY_DECIMALS)
        if not np.isfinite(cosines).all():
            return Drop(reason="not_finite", message="the matcher answered NaN or infinity")
        step = 1 + self._config.phrases
        whole, phrases = cosines[::step], cosines[1::step, :-1] if self._config.phrases else None
        scores = Scores(
            similarity=np.ascontiguousarray(whole[:, :-1], dtype=np.float32),
            image_similarity=np.ascontiguousarray(whole[:, -1], dtype=np.float32),
            phrase_similarity=(
                None if phrases is None else np.ascontiguousarray(phrases, dtype=np.float32)
            ),
            agreement=agreement(sample),
        )
        return dataclasses.replace(sample, scores=scores)

    @classmethod
    def row(cls, sample: Sample) -> dict[str, Any]:
        if sample.scores is None:  # of a dataset of captions alone
            return {"similarity": []}
        return rows.scores_row(sample.scores)

    @classmethod
    def with_row(cls, sample: Sample, row: Mapping[str, Any]) -> Sample:
        return dataclasses.replace(sample, scores=rows.scores(row, len(row["image_similarity"])))


class ScoreCaptions(ScoreStage):
    """Also compares every image with its whole caption, and drops those below a threshold."""

    reads = (*ScoreStage.reads, "caption")
    dataset_columns = (("caption_similarity", pa.float32()),)
    columns = (*ScoreStage.columns, *dataset_columns)

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        captions = [sample.caption for sample in samples]
        texts = [caption.text for caption in captions if caption is not None]
        found = isolate(texts, lambda some: list(self._matcher.embed_sentences(some)))
        ids = [sample.sample_id for sample in samples]
        self._captions = dict(zip(ids, found, strict=True))
        yield from super().process(samples, images)

    def _joined(
        self, sample: Sample, sentences: list[np.ndarray | Drop], regions: np.ndarray | Drop
    ) -> Outcome:
        outcome = super()._joined(sample, sentences, regions)
        caption = self._captions[sample.sample_id]
        if isinstance(outcome, Drop) or isinstance(regions, Drop):
            return outcome
        if isinstance(caption, Drop):
            return caption
        cosine = round(float(caption.astype(np.float32) @ regions[-1]), SIMILARITY_DECIMALS)
        if not math.isfinite(cosine):
            return Drop(reason="not_finite", message="the matcher answered NaN or infinity")
        least = self._config.min_caption_similarity
        if cosine < least:
            message = f"cosine with the caption {cosine:.4f}, want {least:g} or more"
            return Drop(reason="low_caption_similarity", message=message)
        extra = {**outcome.extra, "caption_similarity": cosine}
        return dataclasses.replace(outcome, extra=extra)

    @classmethod
    def row(cls, sample: Sample) -> dict[str, Any]:
        return {**super().row(sample), "caption_similarity": sample.extra["caption_similarity"]}

    @classmethod
    def with_row(cls, sample: Sample, row: Mapping[str, Any]) -> Sample:
        extra = {**sample.extra, "caption_similarity": row["caption_similarity"]}
        return dataclasses.replace(super().with_row(sample, row), extra=extra)


class ReadPairs(ScoreStage):
    """1 for the regions that the file gives to a sentence, else 0; a sentence without a region has
    1 with the whole image. No image is decoded."""

    def __init__(
        self, config: ScoreConfig, table: UserTable | None, captions: GivenCaptions
    ) -> None:
        self._config, self._table, self._captions = config, table, captions

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        backend = self.backend(self._config)
        read = [*read_files(samples, images, backend, self._table, read_region_file)]
        captions = self._captions.of_regions(samples, read, images)
        for sample, found, caption in zip(samples, read, captions, strict=True):
            yield found if isinstance(found, Drop) else self._paired(sample, found, caption)

    def _paired(self, sample: Sample, found: list[RegionOfFile], caption: CleanText) -> Outcome:
        sentences, regions = sample.sentences or (), sample.regions or ()
        similarity = np.zeros((len(sentences), len(regions)), dtype=np.float32)
        for each in found:
            own = each.places(regions)
            for said in each.sentences:
                try:
                    meant = _meant(sentences, said, caption)
                except ValueError as error:
                    return Drop(reason="bad_masks", message=str(error))
                if not meant:
                    return Drop(
                        reason="bad_masks", message=f"no sentence of the caption is {said!r:.80}"
                    )
                similarity[np.ix_(meant, own)] = 1
        whole = (similarity.max(axis=1) == 0).astype(np.float32)
        scores = Scores(similarity=similarity, image_similarity=whole)
        return dataclasses.replace(sample, scores=scores)


def _meant(sentences: Sequence[Sentence], said: Said, caption: CleanText) -> list[int]:
    """The sentences that a file means, by their text or by characters that they share.

    Raises:
        ValueError: the caption has no such characters, or other words there.
    """
    if isinstance(said, str):
        alike = [n for n, sentence in enumerate(sentences) if sentence.text == said.strip()]
        return alike[-1:]
    start, end = placed(caption, said)
    return [
        number
        for number, sentence in enumerate(sentences)
        if max(sentence.char_start, start) < min(sentence.char_end, end)
    ]


def agreement(sample: Sample) -> Float[np.ndarray, "S R"] | None:
    """The grounder's confidence that each region shows each sentence's head phrase, float32.

    agreement(s, r) = the highest score of a grounding of the head phrase of s whose region has an
    IoU of 0.5 or more with r, 0 without one; None where no grounder was asked.
    """
    if "groundings" not in sample.extra:
        return None
    heads = _head_phrases(sample)
    boxes = _region_boxes(sample)
    result = np.zeros((len(sample.sentences or ()), len(boxes)), dtype=np.float32)
    for grounding in sample.extra["groundings"]:
        if (sentence := heads.get(grounding["phrase"])) is not None:
            [near] = iou(boxes[grounding["region"]][None], boxes) >= SAME_IOU
            result[sentence, near] = np.maximum(result[sentence, near], grounding["score"])
    return np.round(result, AGREEMENT_DECIMALS)


def _head_phrases(sample: Sample) -> dict[int, int]:
    """Return each head phrase's sentence, by the number of the phrase."""
    sentences = sample.sentences or ()
    heads = [each.char_start + head_span(each.text)[0] for each in sentences]
    return {
        number: phrase["sentence"]
        for number, phrase in enumerate(sample.extra["phrases"])
        if phrase["char_start"] == heads[phrase["sentence"]]
    }


def _region_boxes(sample: Sample) -> Boxes:
    """xyxy pixels [R, 4]."""
    return np.array([region.box.xyxy for region in sample.regions or ()], dtype=np.float64)
