"""What tests of measurements share: settings for small models, and an embedder set by hand."""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch

from glit.evaluation.collection import (
    AnnotatedCollection,
)
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.validation import open_validation
from glit.inputs.published.files import AnnotatedImage
from glit.training.config import TrainConfig
from glit.training.loop import train

CONFIG = EvaluateConfig(batch_size=4, num_workers=2, device="cpu", recall_at=(1, 5))


def config(**changes) -> EvaluateConfig:
    values = {"batch_size": 4, "num_workers": 2, "device": "cpu", "recall_at": (1, 5)}
    return EvaluateConfig(**{**values, **changes})


def run_of(objective: str, model: Path, dataset: Path, run: Path, **changes) -> Path:
    """A run of one step, so that a scorer has what its objective learned."""
    values = {"batch_size": 4, "max_steps": 1, "num_workers": 0, "trackers": (), **changes}
    train(TrainConfig(model=str(model), objective=objective, **values), str(dataset), run)
    return run


class Stopped(Exception):
    """What a run dies of."""


def ran(config: TrainConfig, dataset: str, run: Path, *, most: int = 0) -> list[dict]:
    """The lines of a run, which goes on if it is there and dies after ``most`` steps."""
    seen = []

    def report(line) -> None:
        if most and line["step"] > most:
            raise Stopped
        seen.append({k: v for k, v in line.items() if not k.endswith("_per_s")})

    with contextlib.suppress(Stopped):
        train(config, dataset, run, resume=run.exists(), report=report,
              open_measure=open_validation)  # fmt: skip
    return seen


class SetByHand:
    """An embedder of known places: a vector for every text, whole image and region."""

    def __init__(self, texts: dict[str, list[float]], wholes, regions=()) -> None:
        self.text_of = texts
        self.whole_of = wholes
        self.region_of = regions

    def wholes(self, collection):
        return [(index, None) for index in range(len(collection.captions))]

    def images(self, collection, pictures) -> torch.Tensor:
        return torch.tensor(
            [self.whole_of[i] if pair is None else self.region_of[i] for i, pair in pictures]
        )

    def texts(self, texts) -> torch.Tensor:
        return torch.tensor([self.text_of[text] for text in texts])


def three_images() -> AnnotatedCollection:
    images = [AnnotatedImage(path=Path(f"{i}.jpg"), captions=(f"Image {i}.",)) for i in range(3)]
    return AnnotatedCollection("three", images, lambda text: [(0, len(text))])
