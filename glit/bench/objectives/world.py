"""What objectives are compared on: scenes and questions about them, or datasets of the user's.

Scenes are painted as they are asked for; no file is needed. Questions are two-way choices from the
scenes' truth, as in ARO (Yuksekgonul et al. 2023) and Winoground (Thrush et al. 2022): a true
sentence and a false one, of every scene one each about an attribute, a position and a relation.
Chance is one half.
"""

from __future__ import annotations

import io
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, Literal

from PIL import Image

from glit.bench.scenes import build_scenes, paint
from glit.dataset.local_pairs import LocalPair
from glit.dataset.reader import Dataset
from glit.errors import UserError
from glit.evaluation.collection import DatasetCollection
from glit.evaluation.config import EvaluateConfig
from glit.images import Pixels, decode
from glit.scenes.captions import SceneCaption, object_sentence, relation_sentence, write_caption
from glit.scenes.layout import SPLITS, Scene, SceneObject, draw_scene
from glit.scenes.render import render
from glit.scenes.vocabulary import COLOURS, PATTERNS, PLACES, SHAPES, SIZES
from glit.stages.recipe import load_table
from glit.text.spans import Span
from glit.training.run_file import dataset_hash

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


def without_twins(seed: int, num: int, *, level: Level = "hard") -> list[Scene]:
    """The first scenes of a seed that are no twin of another."""
    return list(islice((scene for scene in _all(seed, level) if scene.twin_of is None), num))


def twins(seed: int, num: int, *, level: Level = "hard") -> list[Scene]:
    """Pairs one after the other: the original, then its twin; 2 x ``num`` scenes."""
    pairs = (
        (draw_scene(seed, scene.twin_of, level=level), scene)
        for scene in _all(seed, level)
        if scene.twin_of is not None
    )
    return list(chain.from_iterable(islice(pairs, num)))


def _all(seed: int, level: Level) -> Iterator[Scene]:
    return (draw_scene(seed, index, level=level) for index in count())


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

    recipe = "mini"
    """Its table ``train`` gives the settings that are not overridden."""
    items = "scenes"
    """The word for samples in messages."""
    start = "mini-clip"
    """The model that every run starts from."""
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
            short = self.level == "varied"
            paint(
                scenes, num=size, seed=TRAIN_SEED, level=self.level, size=SIZE_PX, short=short
            )  # fmt: skip
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

    def evaluation(self) -> EvaluateConfig:
        """How models are measured."""
        return EvaluateConfig(image_fit="resize", num_workers=1)

    def told(self) -> dict[str, Any]:
        """What the results depend on, as JSON values; runs of another are not mixed in."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Datasets:
    """Finished datasets of glit, in the place of scenes.

    Raises:
        UserError: a setting is of another table than ``train`` and ``evaluate``.
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

    @property
    def start(self) -> str:
        return load_table("train", self.recipe, overrides=self.settings).model

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(each for each in self.overrides if each.startswith("train."))

    def sizes(self) -> dict[str, Any]:
        """Number of training samples and batch size, as fields of a ``Request``."""
        config = load_table("train", self.recipe, overrides=self.settings)
        return {"sizes": (len(Dataset(self.train)),), "batch_size": config.batch_size}

    def training_set(self, folder: Path, size: int, *, negatives: bool) -> str:
        """The path or address that the user gave.

        Raises:
            UserError: false sentences are needed, and it has none.
        """
        if negatives and "negatives" not in Dataset(self.train).schema.names:
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

    def evaluation(self) -> EvaluateConfig:
        own = [each for each in self.overrides if each.startswith("evaluate.")]
        # as training does, which squeezes images
        return load_table("evaluate", self.recipe, overrides=['evaluate.image_fit="resize"', *own])

    def told(self) -> dict[str, Any]:
        paths = {"train": self.train, "test": self.test, "validation": self.validation}
        hashes = {name: path and dataset_hash(Dataset(path)) for name, path in paths.items()}
        same = [name for name in ("test", "validation") if hashes[name] == hashes["train"]]
        if same:
            raise UserError(f"--{same[0]}: is the dataset that is trained on; want other images")
        return {"recipe": self.recipe, "overrides": sorted(self.overrides), **hashes}


World = Scenes | Datasets
"""What objectives are trained and measured on."""


KINDS = ("attribute", "position", "relation")
_VALUES: Mapping[str, Sequence[str]] = {
    "shape": SHAPES,
    "colour": tuple(COLOURS),
    "pattern": PATTERNS,
    "size": tuple(SIZES),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked about a picture."""

    scene: int
    """Number of the scene among those given."""
    kind: str
    """attribute, position or relation."""
    true: str
    false: str
    """The same but for one value."""


def questions(scenes: Sequence[Scene]) -> list[Question]:
    """One of every kind for every scene; the same scenes give the same questions."""
    found = []
    for number, scene in enumerate(scenes):
        rng = random.Random((scene.seed << 32) + scene.index)
        first, second = rng.sample(range(len(scene.objects)), 2)
        item = scene.objects[first]
        places = [p for p in range(len(PLACES)) if all(o.place != p for o in scene.objects)]
        texts = {
            "attribute": (_told(item), _told(_changed(item, scene, rng))),
            "position": (_told(item), _told(replace(item, place=rng.choice(places)))),
            "relation": (
                relation_sentence(scene, first, second),
                relation_sentence(scene, first, second, opposite=True),
            ),
        }
        found += [
            Question(scene=number, kind=kind, true=true, false=false)
            for kind, (true, false) in texts.items()
        ]
    return found


def _told(item: SceneObject) -> str:
    return object_sentence(item, random.Random(0), template=0)


def _changed(item: SceneObject, scene: Scene, rng: random.Random) -> SceneObject:
    """The object with another shape, colour, pattern or size, like none that is there."""
    name = rng.choice(tuple(_VALUES))
    there = {getattr(other, name) for other in scene.objects}
    free = [value for value in _VALUES[name] if value not in there]
    others = free or [value for value in _VALUES[name] if value != getattr(item, name)]
    return replace(item, **{name: rng.choice(others)})
