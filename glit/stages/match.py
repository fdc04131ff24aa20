"""Match: similarities of all sentences and regions, the best region of every sentence.

FAST-GOAL Eq. 1-2 and GOAL section 3.1: class-token embeddings, cosine, argmax over regions,
the most similar pair first. With LISM's rule the whole image is a candidate as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from glit.backends.protocols import Matcher
from glit.config import MatchConfig
from glit.images import Pixels
from glit.records import Drop, Matches, Pair, Sample
from glit.stages.base import ImageSource, Outcome, isolate

VERSION = 2
SIMILARITY_DECIMALS = 5
"""Cosines are kept to this many decimals, well above the noise by which batching moves them."""


class MatchStage:
    """Embeds the regions of several images together and all sentences of a chunk at once."""

    name: ClassVar[str] = "match"

    def __init__(self, config: MatchConfig, matcher: Matcher) -> None:
        self._config = config
        self._matcher = matcher

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        texts = [s.text for sample in samples for s in sample.sentences or ()]
        sentences = isolate(texts, lambda some: list(self._matcher.embed_sentences(some)))
        position = 0
        for group in self._groups(samples, images):
            good = [item for item in group if not isinstance(item[1], Drop)]
            found = iter(isolate(good, self._embed) if good else [])
            for sample, image in group:
                number = len(sample.sentences or ())
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
        return self._finish(sample, np.stack(good), regions)

    def _groups(
        self, samples: Sequence[Sample], images: ImageSource
    ) -> Iterator[list[tuple[Sample, Pixels | Drop]]]:
        """Images whose regions fill at least one encoder batch."""
        group: list[tuple[Sample, Pixels | Drop]] = []
        crops = 0
        for sample, image in zip(samples, images.each(samples), strict=True):
            group.append((sample, image))
            crops += len(sample.regions or ()) + self._config.global_competes
            if crops >= self._config.batch_size:
                yield group
                group, crops = [], 0
        if group:
            yield group

    def _embed(self, items: Sequence[tuple[Sample, Pixels | Drop]]) -> list[np.ndarray]:
        images, boxes = [], []
        for sample, image in items:
            assert sample.regions is not None and not isinstance(image, Drop)
            own = [region.box.xyxy for region in sample.regions]
            if self._config.global_competes:
                own.append((0, 0, sample.width, sample.height))
            images.append(image)
            boxes.append(np.array(own, dtype=np.float64))
        return self._matcher.embed_regions(images, boxes)

    def _finish(self, sample: Sample, sentences: np.ndarray, regions: np.ndarray) -> Outcome:
        cosines = np.round(sentences.astype(np.float32) @ regions.T, SIMILARITY_DECIMALS)
        if not np.isfinite(cosines).all():
            return Drop(reason="not_finite", message="the matcher answered NaN or infinity")
        whole_image = None
        if self._config.global_competes:
            cosines, whole_image = cosines[:, :-1], cosines[:, -1]
        matches = Matches(
            similarity=tuple(np.asarray(cosines, dtype=np.float32).ravel().tolist()),
            pairs=best_pairs(cosines, whole_image),
        )
        return dataclasses.replace(sample, matches=matches)


def best_pairs(
    similarity: Float[np.ndarray, "S R"], whole_image: Float[np.ndarray, " S"] | None = None
) -> tuple[Pair, ...]:
    """The best region of every sentence, best pair first.

    Ties go to the lower region and the lower sentence. A sentence that the whole image wins
    (GOAL section 3.1) is marked and comes after all local pairs; it wins against a region that
    is as good, which as a rule is the whole image once more.

    >>> best_pairs(np.array([[0.1, 0.3], [0.5, 0.2]]))[0].sentence
    1
    """
    best = similarity.argmax(axis=1)
    values = similarity[np.arange(len(best)), best]
    wins = np.zeros(len(best), bool) if whole_image is None else whole_image >= values
    order = np.lexsort((np.arange(len(best)), -values, wins))
    return tuple(
        Pair(
            sentence=int(index),
            region=int(best[index]),
            similarity=float(values[index]),
            global_wins=bool(wins[index]),
        )
        for index in order
    )
