"""``retrieval``: Recall@K both ways (FAST-GOAL Tables III and IV)."""

from __future__ import annotations

from collections.abc import Sequence

from glit.evaluate.collection import Collection, all_captions
from glit.evaluate.config import EvaluateConfig
from glit.evaluate.encode import Embedder
from glit.evaluate.metrics import WAYS, Metrics
from glit.evaluate.recall import first_hit_rank, recall_at
from glit.evaluate.relevance import by_text
from glit.evaluate.scorers.protocol import Scorer, Text, Vectors


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
    image_rank = first_hit_rank(
        lambda t, i: scorer.score(vectors[t], images[i]),
        num_gallery=len(images), relevance=to_image, chunk=config.chunk_size,
    )  # fmt: skip
    text_rank = first_hit_rank(
        lambda i, t: scorer.score(vectors[t], images[i]).T,
        num_gallery=len(vectors), relevance=to_text, chunk=config.chunk_size,
    )  # fmt: skip
    ranks = dict(zip(WAYS, (image_rank, text_rank), strict=True))
    return {
        f"{way}_recall@{k}": value
        for way, rank in ranks.items()
        for k, value in recall_at(rank, ks).items()
    }
