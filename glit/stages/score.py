"""Score: cosines of every sentence with every region and with the whole image.

FAST-GOAL Eq. 1 and GOAL section 3.1: class-token embeddings of crops and sentences, cosine. Rules
(:mod:`glit.rules`) make pairs of the stored cosines without the model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from glit.backends.base import Backend
from glit.backends.matchers import MATCHERS
from glit.backends.protocols import Matcher, MatcherConfig
from glit.config import Choice, added
from glit.images import Pixels
from glit.phrases import head_phrases
from glit.records import Drop, Sample, Scores
from glit.stages.base import Outcome, Stage, isolate
from glit.stages.image_source import ImageSource
from glit.stages.plan import Plan, Recipe

SIMILARITY_DECIMALS = 5
"""Cosines are kept to this many decimals, well above the noise by which batching moves them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreConfig(MatcherConfig):
    """Which model compares regions with sentences."""

    backend: str = added("clip")
    """``clip``: a CLIPModel of any size."""
    phrases: bool = added(False)
    """Also compare the head phrase of every sentence with the regions: a sentence of two things is
    as close to the second (``pair.phrase_weight``)."""
    options: Any = None
    """Keys of the backend's own."""
    choice: ClassVar[Choice] = Choice(
        key="backend", options=lambda: {name: b.options for name, b in MATCHERS.items()}
    )


class ScoreStage(Stage):
    """Embeds the regions of several images together and all sentences of a chunk at once."""

    name = "score"
    version = 1
    needs = ("split", "propose")
    config = ScoreConfig
    columns = (
        ("similarity", pa.list_(pa.float32())),
        ("image_similarity", pa.list_(pa.float32())),
        ("phrase_similarity", pa.list_(pa.float32())),
    )

    def __init__(self, config: ScoreConfig, matcher: Matcher) -> None:
        self._config = config
        self._matcher = matcher

    @classmethod
    def backend(cls, config: ScoreConfig) -> Backend:
        """See :class:`Step`."""
        return MATCHERS[config.backend]

    @classmethod
    def extras(cls, recipe: Recipe) -> Mapping[str, str]:
        """See :class:`Step`."""
        wanted = {"phrases": "score.phrases = true"} if recipe.of(ScoreConfig).phrases else {}
        return {**super().extras(recipe), **wanted}

    @classmethod
    def models(cls, recipe: Recipe) -> Mapping[str, tuple[str, str]]:
        """See :class:`Step`."""
        config = recipe.of(ScoreConfig)
        return {"matcher": (config.model, config.revision)}

    @classmethod
    def identity(cls, plan: Plan) -> Mapping[str, Any]:
        """See :class:`Step`."""
        return {"model": plan.models["matcher"].identity()}

    @classmethod
    def open(cls, plan: Plan) -> ScoreStage:
        """See :class:`Stage`."""
        config = plan.config(ScoreConfig)
        return cls(config, cls.backend(config).make(config, plan.models["matcher"]))

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        """See :class:`Stage`."""
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

    def _groups(
        self, samples: Sequence[Sample], images: ImageSource
    ) -> Iterator[list[tuple[Sample, Pixels | Drop]]]:
        """Images whose crops fill at least one encoder batch."""
        group: list[tuple[Sample, Pixels | Drop]] = []
        crops = 0
        for sample, image in zip(samples, images.each(samples), strict=True):
            group.append((sample, image))
            crops += len(sample.regions or ()) + 1
            if crops >= self._config.batch_size:
                yield group
                group, crops = [], 0
        if group:
            yield group

    def _embed(self, items: Sequence[tuple[Sample, Pixels | Drop]]) -> list[np.ndarray]:
        """Per image [R + 1, D]: its regions', then its own embedding."""
        images, boxes = [], []
        for sample, image in items:
            assert sample.regions is not None and not isinstance(image, Drop)
            own = [region.box.xyxy for region in sample.regions]
            images.append(image)
            boxes.append(np.array([*own, (0, 0, sample.width, sample.height)], dtype=np.float64))
        return self._matcher.embed_regions(images, boxes)

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
        )
        return dataclasses.replace(sample, scores=scores)

    @classmethod
    def row(cls, sample: Sample) -> dict[str, Any]:
        """See :class:`Stage`."""
        assert sample.scores is not None
        phrases = sample.scores.phrase_similarity
        return {
            "similarity": sample.scores.similarity.ravel(),
            "image_similarity": sample.scores.image_similarity,
            "phrase_similarity": None if phrases is None else phrases.ravel(),
        }

    @classmethod
    def with_row(cls, sample: Sample, row: Mapping[str, Any]) -> Sample:
        """See :class:`Stage`."""
        whole = np.array(row["image_similarity"], dtype=np.float32)
        similarity = np.array(row["similarity"], dtype=np.float32).reshape(len(whole), -1)
        phrases = row.get("phrase_similarity")
        if phrases is not None:
            phrases = np.array(phrases, dtype=np.float32).reshape(len(whole), -1)
        scores = Scores(similarity=similarity, image_similarity=whole, phrase_similarity=phrases)
        return dataclasses.replace(sample, scores=scores)
