"""What a model reaches in the world: retrieval, twins, questions, short captions, places."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from glit.bench.objectives.world import SceneCollection, Scenes, World
from glit.errors import UserError
from glit.evaluation.collection import Collection, Text, all_captions
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import CollectionEmbedder
from glit.evaluation.metrics import ROUNDING, WAYS
from glit.evaluation.scorers.protocol import Scorer, Vectors
from glit.evaluation.tasks.joint_map import joint_map
from glit.evaluation.tasks.localize import localize
from glit.evaluation.tasks.retrieval import hit_ranks
from glit.scenes.questions import questions

LOCALISE_AT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Shares between 0 and 1, and which scenes of the gallery were found."""

    figures: dict[str, float]
    """By name."""
    found: np.ndarray
    """bool [2, scenes]: the image of each caption first, then the caption of each image."""


def measure(embedder: CollectionEmbedder, config: EvaluateConfig, world: World) -> Measured:
    """What a scorer finds; questions, twins and short captions are those of scenes."""
    gallery, scorer = world.searched(), config.make_scorer()
    images = scorer.images(embedder, gallery)
    found = _found(scorer, embedder, images, gallery, config)
    figures = {"t2i": float(found[0].mean()), "i2t": float(found[1].mean())}
    if isinstance(world, Scenes):
        scenes = world.scenes()
        short = SceneCollection("short", scenes, short=True)
        short_found = _found(scorer, embedder, images, short, config)
        figures |= {
            "short": float(short_found.mean()),
            "twins": _twins(scorer, embedder, world.of_twins()),
            **_questions(scorer, embedder, images, scenes),
        }
    return Measured(figures=figures, found=found)


def of_regions(
    embedder: CollectionEmbedder, config: EvaluateConfig, world: World
) -> dict[str, float]:
    """Joint mAP, and localisation with its chance; no scorer changes them.

    Empty without pairs; localisation is missing where patches are not in the shared space.
    """
    first = world.located()
    if not any(first.pairs(index) for index in range(len(first.captions))):
        return {}
    joint = joint_map(embedder, first, config)
    ways = [joint[f"{way}_retrieval_map@{config.precision_at}"] for way in ("image", "text")]
    figures = {"joint": float(np.mean(ways))}
    places = replace(config, localize_pairs="all", localize_at=(LOCALISE_AT,))
    with suppress(UserError):  # no patches in the shared space
        local = localize(embedder, first, places)
        figures["localisation"] = local[f"localisation@{LOCALISE_AT}"]
        figures["chance"] = local[f"chance@{LOCALISE_AT}"]
    return figures


def validate(embedder: CollectionEmbedder, config: EvaluateConfig, collection: Collection) -> float:
    """Mean R@1 of both ways, by which a learning rate is chosen."""
    scorer = config.make_scorer()
    images = scorer.images(embedder, collection)
    return float(_found(scorer, embedder, images, collection, config).mean())


def _found(
    scorer: Scorer,
    embedder: CollectionEmbedder,
    images: Vectors,
    collection: Collection,
    config: EvaluateConfig,
) -> np.ndarray:
    """Which captions find their image first, and which images their caption; bool [2, scenes]."""
    texts, owner = all_captions(collection)
    ranks = hit_ranks(scorer, images, scorer.texts(embedder, texts), texts, owner, config)
    return np.stack([ranks[way] for way in WAYS]) == 0


def _twins(scorer: Scorer, embedder: CollectionEmbedder, collection: SceneCollection) -> float:
    """Share of right choices between twins: both images for each text, both texts for each image.

    Equal scores, such as those of captions that the text window makes equal, count one half.
    """
    texts, _ = all_captions(collection)
    images, vectors = scorer.images(embedder, collection), scorer.texts(embedder, texts)
    right = []
    for low in range(0, len(texts), 2):
        pair = scorer.score(vectors[low : low + 2], images[low : low + 2]).numpy()
        right += [_choice(pair[k, k], pair[k, 1 - k]) for k in (0, 1)]
        right += [_choice(pair[k, k], pair[1 - k, k]) for k in (0, 1)]
    return float(np.mean(right))


def _questions(
    scorer: Scorer, embedder: CollectionEmbedder, images: Vectors, scenes: Sequence
) -> dict[str, float]:
    """Shares of right answers by kind; ``KIND_blind`` are those with another scene's picture."""
    asked = questions(scenes)
    both = [text for each in asked for text in (each.true, each.false)]
    vectors = scorer.texts(embedder, [Text(text=text, sentences=()) for text in both])
    right: dict[str, list[float]] = defaultdict(list)
    for number, each in enumerate(asked):
        other = (each.scene + len(scenes) // 2) % len(scenes)
        for name, scene in ((each.kind, each.scene), (f"{each.kind}_blind", other)):
            some = scorer.score(vectors[2 * number :][:2], images[scene : scene + 1])
            right[name].append(_choice(float(some[0, 0]), float(some[1, 0])))
    return {name: float(np.mean(values)) for name, values in right.items()}


def _choice(right: float, wrong: float) -> float:
    return 0.5 if abs(right - wrong) < ROUNDING else float(right > wrong)
