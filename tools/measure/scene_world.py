"""Drawn scenes as what objectives are compared on: their datasets, galleries, twins and questions.

Scenes are painted as they are asked for; no file is needed.
"""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from PIL import Image

from glit.bench.objectives.measure import hits
from glit.bench.objectives.run import MINI_STARTS
from glit.bench.scenes import build_scenes, paint
from glit.clip.image_fit import ImageFit
from glit.dataset.local_pairs import LocalPair
from glit.evaluation.collection import Text, all_captions
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import CollectionEmbedder
from glit.evaluation.metrics import ROUNDING
from glit.evaluation.scorers.protocol import Scorer, Vectors
from glit.images import Pixels, decode
from glit.scenes.captions import SceneCaption, write_caption
from glit.scenes.layout import SPLITS, Scene
from glit.scenes.render import render
from glit.stages.negatives import NegativesStage
from glit.text.spans import Span
from tools.measure.scene_questions import questions, twins, without_twins

Level = Literal["hard", "varied"]
SIZE_PX = 128
TRAIN_SEED = SPLITS["train"][0] + 70_000
VALIDATION_SEED = SPLITS["validation"][0] + 70
GALLERY_SEED = SPLITS["test"][0] + 70
TWINS_SEED = SPLITS["test"][0] + 71


class SceneCollection:
    """Scenes with their long or their short captions; pairs are the sentences that tell of an
    object, and the object's box."""

    def __init__(self, name: str, scenes: Sequence[Scene], *, short: bool = False) -> None:
        self.name = name
        self.scenes = list(scenes)
        self.told: list[SceneCaption] = [write_caption(scene) for scene in scenes]
        self.names = [f"{scene.seed}-{scene.index}" for scene in scenes]
        self.captions = [(told.short if short else told.text,) for told in self.told]
        self._short = short

    def image(self, index: int) -> bytes:
        """The picture as PNG."""
        file = io.BytesIO()
        pixels = render(self.scenes[index], size_px=SIZE_PX).pixels
        Image.fromarray(pixels).save(file, format="PNG", compress_level=1)
        return file.getvalue()

    def pixels(self, index: int) -> Pixels:
        """The decoded image."""
        return decode(self.image(index))

    def sentences(self, index: int) -> list[list[Span]]:
        """Of the long caption; a short one is one sentence."""
        if self._short:
            return [[(0, len(self.captions[index][0]))]]
        return [[(s.char_start, s.char_end) for s in self.told[index].sentences]]

    def pairs(self, index: int) -> tuple[LocalPair, ...]:
        """Sentences of the kind "object", in the caption's order, with the true boxes."""
        boxes = render(self.scenes[index], size_px=SIZE_PX).boxes_xyxy
        return tuple(
            LocalPair(
                sentence=sentence.text,
                token_span=(0, 0),
                box_xyxy=boxes[sentence.object],
                similarity=1.0,
            )
            for sentence in self.told[index].sentences
            if sentence.kind == "object" and sentence.object is not None
        )

    def size(self, index: int) -> tuple[int, int]:
        """Of the picture, pixels."""
        return SIZE_PX, SIZE_PX


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenes:
    """Drawn scenes with twins: their level, and how many of them each figure is measured on."""

    level: Level = "varied"
    """``varied`` trains on long and short captions; captions of ``hard`` all begin with how many
    objects there are, and stand alone."""

    gallery: int = 2000
    """Scenes without twins that are searched."""
    twins: int = 400
    """Pairs of twins."""
    local: int = 500
    """First scenes of the gallery, for localisation and joint mAP."""
    validation: int = 300
    """Scenes without twins on which learning rates are chosen."""
    start: str = MINI_STARTS[0]
    """The model that every run starts from."""

    recipe = "mini"
    """Its table ``train`` gives the settings that are not overridden."""
    items = "scenes"
    """The word for samples in messages."""
    settings = ("train.warmup_steps=20", "train.num_workers=1")
    """Overrides for ``glit train``."""
    further_columns: ClassVar[Mapping[str, str]] = {
        "twins": "twins",
        "short": "short R@1",
        "attribute": "attribute",
        "position": "position",
        "relation": "relation",
        "attribute_blind": "attribute, blind",
        "position_blind": "position, blind",
    }
    """Heads of the table for the keys of :meth:`further`."""

    def training_set(self, folder: Path, size: int, *, negatives: bool) -> Path:
        """The dataset to train on, twins side by side; it is built if it is not there.

        Args:
            folder: of scenes and datasets.
            size: scenes.
            negatives: with false sentences, in a dataset of its own.
        """
        dataset = folder / f"train-{size}{'-negatives' if negatives else ''}"
        scenes = folder / f"scenes-{size}"
        if not (dataset / "manifest.json").is_file():
            settings = ["negatives.enabled=true"] if negatives else []
            if self.start != MINI_STARTS[0]:
                settings.append(f"split.tokenizer={json.dumps(self.start)}")
            seed, short = TRAIN_SEED, self.level == "varied"
            paint(scenes, num=size, seed=seed, level=self.level, size=SIZE_PX, short=short)
            captions = scenes / "captions.jsonl"
            build_scenes(scenes, dataset, captions=captions, recipe="glit-mini", settings=settings)
        return dataset

    def scenes(self) -> list[Scene]:
        """Those of the gallery."""
        return without_twins(GALLERY_SEED, self.gallery, level=self.level)

    def searched(self) -> SceneCollection:
        """The gallery for retrieval."""
        return SceneCollection("gallery", self.scenes())

    def of_twins(self) -> SceneCollection:
        """Pairs of twins, the two of a pair one after the other."""
        return SceneCollection("twins", twins(TWINS_SEED, self.twins, level=self.level))

    def located(self) -> SceneCollection:
        """Samples on which localisation and joint mAP are measured; they have pairs."""
        return SceneCollection("local", self.scenes()[: self.local])

    def validated(self) -> SceneCollection | None:
        """Samples on which the learning rate is chosen."""
        return SceneCollection(
            "validation", without_twins(VALIDATION_SEED, self.validation, level=self.level)
        )

    def further(
        self, embedder: CollectionEmbedder, config: EvaluateConfig, images: Vectors
    ) -> dict[str, float]:
        """Short captions of the gallery, choices between twins, and answers to questions."""
        scenes, scorer = self.scenes(), config.make_scorer()
        short = SceneCollection("short", scenes, short=True)
        return {
            "short": float(hits(scorer, embedder, images, short, config).mean()),
            "twins": _twins(scorer, embedder, self.of_twins()),
            **_questions(scorer, embedder, images, scenes),
        }

    def evaluation(self, *, context: int = 248, image_fit: ImageFit = "resize") -> EvaluateConfig:
        """How models are measured that were trained with this text window and fit of images."""
        return EvaluateConfig(context=context, image_fit=image_fit, num_workers=1)

    def told(self) -> dict[str, Any]:
        """What the results depend on, as JSON values; runs of another are not mixed in."""
        return {**asdict(self), "negatives": NegativesStage.version}


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
