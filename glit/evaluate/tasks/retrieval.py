"""``retrieval``: Recall@K both ways (FAST-GOAL Tables III and IV)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from glit.evaluate.collection import Collection, all_captions
from glit.evaluate.config import EvaluateConfig
from glit.evaluate.encode import Embedder
from glit.evaluate.metrics import WAYS, Metrics
from glit.evaluate.recall import Block, first_hit_rank, recall_at
from glit.evaluate.relevance import by_text
from glit.evaluate.scorers.protocol import Scorer, Text, Vectors

MOST_KEPT = 1 << 26
"""Scores that are kept, 256 MB; every block is computed four times where there are more."""


def retrieval(embedder: Embedder, collection: Collection, config: EvaluateConfig) -> Metrics:
    """Recall@K by the scorer of ``evaluate.scorer``; several captions an image are allowed."""
    scorer = config.make_scorer()
    texts, owner = all_captions(collection)
    images = scorer.images(embedder, collection)
    return recalls(
        scorer, images, scorer.texts(embedder, texts), texts, owner, config, ks=config.recall_at
    )


def recalls(
    scorer: Scorer,
    images: Vectors,
    vectors: Vectors,
    texts: Sequence[Text],
    owner: Sequence[int],
    config: EvaluateConfig,
    *,
    ks: Sequence[int],
) -> Metrics:
    """Recall@K of images by texts and of texts by images.

    Args:
        scorer: compares them.
        images: as the scorer sees them.
        vectors: the texts as the scorer sees them.
        texts: equal ones stand for each other.
        owner: the image of every text.
        config: sizes of blocks.
        ks: the K.
    """
    to_image, to_text = by_text(owner, [text.text for text in texts], len(images))
    scores = _scores(scorer, vectors, images, config.chunk_size)
    image_rank = first_hit_rank(
        scores,
        num_gallery=len(images), relevance=to_image, chunk=config.chunk_size,
    )  # fmt: skip
    text_rank = first_hit_rank(
        lambda i, t: scores(t, i).T,
        num_gallery=len(vectors), relevance=to_text, chunk=config.chunk_size,
    )  # fmt: skip
    ranks = dict(zip(WAYS, (image_rank, text_rank), strict=True))
    return {
        f"{way}_recall@{k}": value
        for way, rank in ranks.items()
        for k, value in recall_at(rank, ks).items()
    }


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
