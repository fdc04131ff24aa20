"""``retrieval``: Recall@K both ways (FAST-GOAL Tables III and IV)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int

from glit.evaluation.collection import Collection, all_captions
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import CollectionEmbedder
from glit.evaluation.metrics import WAYS, Measured, Metrics
from glit.evaluation.neighbours import as_dicts, examples
from glit.evaluation.recall import Block, first_hit_rank, recall_at
from glit.evaluation.relevance import Relevance, by_text
from glit.evaluation.scorers.protocol import Scorer, Text, Vectors

Ranks = Mapping[str, Int[np.ndarray, " q"]]
"""By direction: texts ask for images, images ask for texts."""
MOST_KEPT = 1 << 26
"""Scores that are kept, 256 MB; every block is computed four times where there are more."""


def retrieval(
    embedder: CollectionEmbedder,
    collection: Collection,
    config: EvaluateConfig,
    *,
    neighbours: int = 0,
) -> Measured:
    """Recall@K by the scorer of ``evaluate.scorer``; several captions an image are allowed.

    With ``neighbours``, also up to so many queries of each direction that are right, and as many
    that are not.
    """
    scorer = config.make_scorer()
    texts, owner = all_captions(collection)
    images = scorer.images(embedder, collection)
    found = Measured(metrics={})
    words = [text.text for text in texts]
    for way in _ways(scorer, images, scorer.texts(embedder, texts), texts, owner, config):
        found.metrics.update(way.recalls(config.recall_at))
        if neighbours:
            right, wrong = examples(
                way.block, way.rank, num_gallery=way.num_gallery, relevance=way.relevance,
                most=neighbours, chunk=config.chunk_size,
            )  # fmt: skip
            found.neighbours[way.name] = {
                kind: as_dicts(some, by=way.by, texts=words, collection=collection)
                for kind, some in (("right", right), ("wrong", wrong))
            }
    return found


def hit_ranks(
    scorer: Scorer,
    images: Vectors,
    vectors: Vectors,
    texts: Sequence[Text],
    owner: Sequence[int],
    config: EvaluateConfig,
) -> Ranks:
    """The rank (from 0) of every query's first correct result, by direction.

    Args:
        scorer: compares them.
        images: as the scorer sees them.
        vectors: the texts as the scorer sees them.
        texts: equal ones stand for each other.
        owner: the image of every text.
        config: sizes of blocks.
    """
    ways = _ways(scorer, images, vectors, texts, owner, config)
    return {way.name: way.rank for way in ways}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """A direction of retrieval, with its ranks."""

    name: str
    by: str
    """The side that asks: ``text`` or ``image``."""
    block: Block
    num_gallery: int
    relevance: Relevance
    rank: Int[np.ndarray, " q"]

    def recalls(self, ks: Sequence[int]) -> Metrics:
        return {f"{self.name}_recall@{k}": v for k, v in recall_at(self.rank, ks).items()}


def _ways(
    scorer: Scorer, images: Vectors, vectors: Vectors, texts: Sequence[Text],
    owner: Sequence[int], config: EvaluateConfig,
) -> Iterator[_Way]:  # fmt: skip
    to_image, to_text = by_text(owner, [text.text for text in texts], len(images))
    scores = _scores(scorer, vectors, images, config.chunk_size)
    for name, by, block, number, relevance in (
        (WAYS[0], "text", scores, len(images), to_image),
        (WAYS[1], "image", lambda i, t: scores(t, i).T, len(vectors), to_text),
    ):
        rank = first_hit_rank(
            block, num_gallery=number, relevance=relevance, chunk=config.chunk_size
        )
        yield _Way(
            name=name, by=by, block=block, num_gallery=number, relevance=relevance, rank=rank
        )


def _scores(scorer: Scorer, texts: Vectors, images: Vectors, chunk: int) -> Block:
    """Blocks of scores; those of a matrix of ordinary size are computed once and kept."""
    if len(texts) * len(images) > MOST_KEPT:
        return lambda t, i: scorer.score(texts[t], images[i])
    whole_TI = torch.empty(len(texts), len(images))
    for t in range(0, len(texts), chunk):
        for i in range(0, len(images), chunk):
            some, others = slice(t, t + chunk), slice(i, i + chunk)
            whole_TI[some, others] = scorer.score(texts[some], images[others])
    return lambda t, i: whole_TI[t, i]
