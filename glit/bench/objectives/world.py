"""What objectives are compared on: scenes and questions about them, or datasets of the user's.

Scenes are painted as they are asked for; no file is needed.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from PIL import Image

from glit.bench.scenes import build_scenes, paint
from glit.clip import ImageFit
from glit.dataset.local_pairs import LocalPair
from glit.dataset.reader import Dataset
from glit.errors import UserError
from glit.evaluation.collection import DatasetCollection
from glit.evaluation.config import EvaluateConfig
from glit.images import Pixels, decode
from glit.planning.recipe import load_table
from glit.recipes.config import as_table
from glit.scenes.captions import SceneCaption, write_caption
from glit.scenes.layout import SPLITS, Scene
from glit.scenes.questions import twins, without_twins
from glit.scenes.render import render
from glit.stages.negatives import NegativesStage
from glit.text.spans import Span
from glit.training.run_file import dataset_hash

Level = Literal["hard", "varied"]
MINI_STARTS = ("mini-clip", "mini-matcher")
"""Bundled models to start from. ``mini-clip``, the default, was trained on whole images and short
captions and hardly distinguishes shapes; ``mini-matcher`` was trained on regions and does."""
SIZE_PX = 128
LR_FACTORS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""With a validation dataset, the recipe's learning rate times each of these is tried."""
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

    def validated(self) -> SceneCollection:
        """Samples on which the learning rate is chosen."""
        return SceneCollection(
            "validation", without_twins(VALIDATION_SEED, self.validation, level=self.level)
        )

    def evaluation(self, *, context: int = 248, image_fit: ImageFit = "resize") -> EvaluateConfig:
        """How models are measured that were trained with this text window and fit of images."""
        return EvaluateConfig(context=context, image_fit=image_fit, num_workers=1)

    def told(self) -> dict[str, Any]:
        """What the results depend on, as JSON values; runs of another are not mixed in."""
        return {**asdict(self), "negatives": NegativesStage.version}


@dataclass(frozen=True, kw_only=True)
class Datasets:
    """Finished datasets of glit, in the place of scenes.

    Raises:
        UserError: a setting is of another table than ``train`` and ``evaluate``, or is the seed or
            the objective.
    """

    train: str
    test: str
    validation: str | None = None
    recipe: str = "mini"
    overrides: tuple[str, ...] = ()
    """Of ``train`` and ``evaluate``: ``table.key=value``."""

    items = "samples"

    def __post_init__(self) -> None:
        for each in self.overrides:
            if not each.startswith(("train.", "evaluate.")):
                raise UserError(f"--set {each}: wanted a key of train or evaluate")
            if each.startswith("train.seed"):
                raise UserError(f"--set {each}: every objective has seeds 0, 1, 2, ...: --seeds")
            if each.startswith("train.objective"):
                raise UserError(f"--set {each}: objectives are named with --objective")

    @property
    def start(self) -> str:
        return load_table("train", self.recipe, overrides=self.settings).model

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(each for each in self.overrides if each.startswith("train."))

    def defaults(self) -> dict[str, Any]:
        """Fields of a ``Request`` from the training set, the recipe and the overrides: number of
        samples, batch size, epochs and learning rates to try."""
        config = load_table("train", self.recipe, overrides=self.settings)
        factors = LR_FACTORS if self.validation else (1.0,)
        return {
            "sizes": (len(Dataset(self.train)),),
            "batch_size": config.batch_size,
            "epochs": config.epochs,
            "lrs": [float(f"{config.lr * factor:.2g}") for factor in factors],
        }

    @property
    def has_negatives(self) -> bool:
        """Whether the training set has false sentences."""
        return "negatives" in Dataset(self.train).schema.names

    def training_set(self, folder: Path, size: int, *, negatives: bool) -> str:
        """The path or address that the user gave.

        Raises:
            UserError: false sentences are needed, and it has none.
        """
        if negatives and not self.has_negatives:
            raise UserError(
                f"{self.train} has no false sentences; build it with --set negatives.enabled=true, "
                "or name other objectives"
            )
        return self.train

    @cached_property
    def _test(self) -> DatasetCollection:
        return DatasetCollection(self.test, self.evaluation())

    def searched(self) -> DatasetCollection:
        return self._test

    def located(self) -> DatasetCollection:
        return self._test

    def validated(self) -> DatasetCollection | None:
        if self.validation is None:
            return None
        return DatasetCollection(self.validation, self.evaluation())

    def evaluation(self, *, context: int = 248, image_fit: ImageFit = "resize") -> EvaluateConfig:
        trained_so = [f"evaluate.context={context}", f'evaluate.image_fit="{image_fit}"']
        own = [each for each in self.overrides if each.startswith("evaluate.")]
        return load_table("evaluate", self.recipe, overrides=[*trained_so, *own])

    def told(self) -> dict[str, Any]:
        paths = {"train": self.train, "test": self.test, "validation": self.validation}
        hashes = {name: path and dataset_hash(Dataset(path)) for name, path in paths.items()}
        same = [name for name in ("test", "validation") if hashes[name] == hashes["train"]]
        if same:
            raise UserError(f"--{same[0]}: is the dataset that is trained on; want other images")
        evaluation = json.loads(json.dumps(as_table(self.evaluation())))
        return {
            "recipe": self.recipe,
            "overrides": sorted(self.overrides),
            "evaluate": evaluation,
            **hashes,
        }


World = Scenes | Datasets
"""What objectives are trained and measured on."""
