"""``caption-quality``: mean cosine of images and their captions (FAST-GOAL Table I)."""

from __future__ import annotations

import numpy as np

from glit.evaluation.collection import Collection, all_captions
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import CollectionEmbedder
from glit.evaluation.metrics import Metrics


def caption_quality(
    embedder: CollectionEmbedder, collection: Collection, config: EvaluateConfig
) -> Metrics:
    """Mean cosine of image and caption over pairs drawn at random (Table I), with its error.

    The papers measure with Long-CLIP ViT-L/14; the figure means nothing across models.
    """
    texts, owner = all_captions(collection)
    drawn = np.arange(len(texts))
    if 0 < config.quality_samples < len(texts):
        generator = np.random.default_rng(config.seed)
        drawn = np.sort(generator.choice(len(texts), config.quality_samples, replace=False))
    image_ND = embedder.images(collection, [(owner[t], None) for t in drawn.tolist()])
    text_ND = embedder.texts([texts[t].text for t in drawn.tolist()])
    cosine_N = (image_ND * text_ND).sum(dim=1).double()
    error = float(cosine_N.std()) / len(drawn) ** 0.5 if len(drawn) > 1 else 0.0
    return {
        "mean_cosine": float(cosine_N.mean()),
        "standard_error": error,
        "pairs": float(len(drawn)),
    }
