"""Measure a model on the test dataset: retrieval, and regions."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from glit.errors import UserError
from glit.evaluation.collection import Collection, all_captions
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import CollectionEmbedder
from glit.evaluation.metrics import WAYS
from glit.evaluation.tasks.joint_map import joint_map
from glit.evaluation.tasks.localize import localize
from glit.evaluation.tasks.retrieval import hit_ranks

LOCALISE_AT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Shares between 0 and 1, and which samples of the gallery were found."""

    figures: dict[str, float]
    """By name."""
    found: np.ndarray
    """bool [2, samples]: the image of each caption first, then the caption of each image."""


def measure(embedder: CollectionEmbedder, config: EvaluateConfig, tested: Collection) -> Measured:
    """Return the hits of a scorer among the tested samples."""
    found = hits(embedder, config, tested)
    figures = {"t2i": float(found[0].mean()), "i2t": float(found[1].mean())}
    return Measured(figures=figures, found=found)


def of_regions(
    embedder: CollectionEmbedder, config: EvaluateConfig, tested: Collection
) -> dict[str, float]:
    """Joint mAP, and localisation with its chance; no scorer changes them.

    Empty without pairs; localisation is missing where patches are not in the shared space.
    """
    if not any(tested.pairs(index) for index in range(len(tested.captions))):
        return {}
    joint = joint_map(embedder, tested, config)
    ways = [joint[f"{way}_retrieval_map@{config.precision_at}"] for way in ("image", "text")]
    figures = {"joint": float(np.mean(ways))}
    places = replace(config, localize_pairs="all", localize_at=(LOCALISE_AT,))
    with suppress(UserError):  # no patches in the shared space
        local = localize(embedder, tested, places)
        figures["localisation"] = local[f"localisation@{LOCALISE_AT}"]
        figures["chance"] = local[f"chance@{LOCALISE_AT}"]
    return figures


def hits(
    embedder: CollectionEmbedder, config: EvaluateConfig, collection: Collection
) -> np.ndarray:
    """Return which captions find their image first, and which images their caption; bool [2,
    samples]."""
    scorer = config.make_scorer()
    images = scorer.images(embedder, collection)
    texts, owner = all_captions(collection)
    ranks = hit_ranks(scorer, images, scorer.texts(embedder, texts), texts, owner, config)
    return np.stack([ranks[way] for way in WAYS]) == 0
