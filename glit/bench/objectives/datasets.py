"""The datasets of a comparison, and the settings with which models are trained and measured."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from glit.dataset.reader import Dataset
from glit.errors import UserError
from glit.evaluation.collection import DatasetCollection
from glit.evaluation.config import EvaluateConfig
from glit.models.clip.image_fit import ImageFit
from glit.pipeline.planning.recipe import load_table
from glit.recipes.config import as_table
from glit.training.config import TrainConfig
from glit.training.run_file import dataset_hash

_LR_FACTORS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""With a validation dataset, the recipe's learning rate times each of these is tried."""


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

    def __post_init__(self) -> None:
        for each in self.overrides:
            if not each.startswith(("train.", "evaluate.")):
                raise UserError(f"--set {each}: wanted a key of train or evaluate")
            if each.startswith("train.seed"):
                raise UserError(f"--set {each}: every objective has seeds 0, 1, 2, ...: --seeds")
            if each.startswith("train.objective"):
                raise UserError(f"--set {each}: objectives are named with --objective")

    @property
    def settings(self) -> list[str]:
        """Overrides of ``train``."""
        return [each for each in self.overrides if each.startswith("train.")]

    def config(self, *more: str) -> TrainConfig:
        """The recipe's table ``train`` with the overrides, and more of them."""
        return load_table(TrainConfig, self.recipe, overrides=[*self.settings, *more])

    def lrs(self) -> list[float]:
        """The learning rates to try where the user names none."""
        lr = self.config().lr
        return [float(f"{lr * f:.2g}") for f in (_LR_FACTORS if self.validation else (1.0,))]

    @property
    def has_negatives(self) -> bool:
        """True if the training set has the column ``negatives``, false sentences."""
        return "negatives" in Dataset(self.train).schema.names

    @cached_property
    def tested(self) -> DatasetCollection:
        """The samples on which models are compared."""
        return DatasetCollection(self.test, self.evaluation())

    @cached_property
    def validated(self) -> DatasetCollection | None:
        """The samples on which learning rates are chosen."""
        return (self.validation and DatasetCollection(self.validation, self.evaluation())) or None

    def evaluation(self, *, context: int = 248, image_fit: ImageFit = "resize") -> EvaluateConfig:
        """How to measure models that were trained with this text window and fit of images."""
        as_trained = [f"evaluate.context={context}", f'evaluate.image_fit="{image_fit}"']
        own = [each for each in self.overrides if each.startswith("evaluate.")]
        return load_table(EvaluateConfig, self.recipe, overrides=[*as_trained, *own])

    def identity(self) -> dict[str, Any]:
        """The values that the results depend on, for JSON; runs with others are not mixed in.

        Raises:
            UserError: the dataset that is trained on is measured on, too.
        """
        paths = {"train": self.train, "test": self.test, "validation": self.validation}
        hashes = {name: path and dataset_hash(Dataset(path)) for name, path in paths.items()}
        same = [name for name in ("test", "validation") if hashes[name] == hashes["train"]]
        if same:
            raise UserError(f"--{same[0]}: is the dataset that is trained on; want other images")
        return {
            "recipe": self.recipe,
            "overrides": sorted(self.overrides),
            "evaluate": json.loads(json.dumps(as_table(self.evaluation()))),
            **hashes,
        }
