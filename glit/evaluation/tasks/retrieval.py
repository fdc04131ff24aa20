"""``retrieval``: Recall@K both ways (FAST-GOAL Tables III and IV)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from glit.evaluation.collection import Collection, all_captions
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import CollectionEmbedder
from glit.evaluation.metrics import WAYS, Measured
from glit.evaluation.neighbours import as_dicts, examples
from glit.evaluation.ranking import Scores, first_hit_rank, recall_at
from glit.evaluation.relevance import Relevance, by_text
from glit.evaluation.scorers.protocol import Scorer, Text, Vectors

Ranks = Mapping[str, Int[np.ndarray, " q"]]
"""By direction: texts ask for images, images ask for texts."""
MOST_KEPT = 1 << 26
"""Scores that are kept, 256 MB; of more, each is computed once for either direction."""


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
        shares = recall_at(way.rank, config.recall_at)
        found.metrics.update({f"{way.name}_recall@{k}": share for k, share in shares.items()})
        if neighbours:
            both = examples(way.scores, way.rank, way.relevance, most=neighbours)
            found.neighbours[way.name] = {
                kind: as_dicts(some, by=way.by, texts=words, collection=collection)
                for kind, some in zip(("right", "wrong"), both, strict=True)
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
    scores: Scores
    relevance: Relevance
    rank: Int[np.ndarray, " q"]


def _ways(
    scorer: Scorer, images: Vectors, vectors: Vectors, texts: Sequence[Text],
    owner: Sequence[int], config: EvaluateConfig,
) -> Iterator[_Way]:  # fmt: skip
    chunk = config.chunk_size
    to_image, to_text = by_text(owner, [text.text for text in texts], len(images))

    def of_texts(some: slice) -> Tensor:
        pieces = [images[low : low + chunk] for low in range(0, len(images), chunk)]
        return torch.cat([scorer.score(vectors[some], piece) for piece in pieces], dim=1)

    def of_images(some: slice) -> Tensor:
        pieces = [vectors[low : low + chunk] for low in range(0, len(vectors), chunk)]
        return torch.cat([scorer.score(piece, images[some]) for piece in pieces]).T

    scores: tuple[Scores, Scores] = of_texts, of_images
    if len(vectors) * len(images) <= MOST_KEPT:
        blocks = range(0, len(vectors), chunk)
        whole_TI = torch.cat([of_texts(slice(low, low + chunk)) for low in blocks])
        scores = whole_TI.__getitem__, whole_TI.T.__getitem__
    for name, by, score, number, relevance in (
        (WAYS[0], "text", scores[0], len(images), to_image),
        (WAYS[1], "image", scores[1], len(vectors), to_text),
    ):
        rank = first_hit_rank(score, num_gallery=number, relevance=relevance, chunk=chunk)
        yield _Way(name=name, by=by, scores=score, relevance=relevance, rank=rank)
