"""The world of a comparison: datasets, or anything else with the same methods."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

from glit.clip.image_fit import ImageFit
from glit.dataset.reader import Dataset
from glit.errors import UserError
from glit.evaluation.collection import Collection, DatasetCollection
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import CollectionEmbedder
from glit.evaluation.scorers.protocol import Vectors
from glit.planning.recipe import load_table
from glit.recipes.config import as_table
from glit.training.config import TrainConfig
from glit.training.run_file import dataset_hash

LR_FACTORS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""With a validation dataset, the recipe's learning rate times each of these is tried."""


class World(Protocol):
    """The data that objectives are trained and measured on."""

    @property
    def recipe(self) -> str:
        """Its table ``train`` gives the settings that are not overridden."""
        ...

    @property
    def items(self) -> str:
        """The word for samples in messages."""
        ...

    @property
    def start(self) -> str:
        """The model that every run starts from."""
        ...

    @property
    def settings(self) -> tuple[str, ...]:
        """Overrides for ``glit train``."""
        ...

    further_columns: ClassVar[Mapping[str, str]]
    """Heads of the table for the keys of :meth:`further`."""

    def training_set(self, folder: Path, size: int, *, negatives: bool) -> str | Path:
        """The dataset to train on; made if it has to be.

        Args:
            folder: for what is made.
            size: samples.
            negatives: with false sentences.
        """
        ...

    def searched(self) -> Collection:
        """The gallery for retrieval."""
        ...

    def located(self) -> Collection:
        """Samples on which localisation and joint mAP are measured; they have pairs."""
        ...

    def validated(self) -> Collection | None:
        """Samples on which the learning rate is chosen."""
        ...

    def further(
        self, embedder: CollectionEmbedder, config: EvaluateConfig, images: Vectors
    ) -> dict[str, float]:
        """Further figures, 0 to 1, from the vectors of the gallery's images."""
        ...

    def evaluation(self, *, context: int = 248, image_fit: ImageFit = "resize") -> EvaluateConfig:
        """Return how to measure models trained with this text window and fit of images."""
        ...

    def told(self) -> dict[str, Any]:
        """Return the values that the results depend on, for JSON; runs with others are not mixed
        in."""
        ...


@dataclass(frozen=True, kw_only=True)
class Datasets:
    """Finished datasets of glit.

    Raises:
        UserError: a setting is of another table than ``train`` and ``evaluate``, or is the seed or
            the objective.
    """

    train: str
    test: str
    validation: str | None = None
    recipe: str = "mini"
    overrides: tuple[str, ...] = ()
    """Overrides of ``train`` and ``evaluate``: ``table.key=value``."""

    items = "samples"
    further_columns: ClassVar[Mapping[str, str]] = {}

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
        return load_table(TrainConfig, self.recipe, overrides=self.settings).model

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(each for each in self.overrides if each.startswith("train."))

    def defaults(self) -> dict[str, Any]:
        """Fields of a ``Request`` from the training set, the recipe and the overrides: number of
        samples, batch size, epochs and learning rates to try."""
        config = load_table(TrainConfig, self.recipe, overrides=self.settings)
        factors = LR_FACTORS if self.validation else (1.0,)
        return {
            "sizes": (len(Dataset(self.train)),),
            "batch_size": config.batch_size,
            "epochs": config.epochs,
            "lrs": [float(f"{config.lr * factor:.2g}") for factor in factors],
        }

    @property
    def has_negatives(self) -> bool:
        """True if the training set has false sentences."""
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

    def further(
        self, embedder: CollectionEmbedder, config: EvaluateConfig, images: Vectors
    ) -> dict[str, float]:
        return {}

    def evaluation(self, *, context: int = 248, image_fit: ImageFit = "resize") -> EvaluateConfig:
        trained_so = [f"evaluate.context={context}", f'evaluate.image_fit="{image_fit}"']
        own = [each for each in self.overrides if each.startswith("evaluate.")]
        return load_table(EvaluateConfig, self.recipe, overrides=[*trained_so, *own])

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
