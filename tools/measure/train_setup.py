"""What the parts of the training benchmark share: a model, a dataset, a clock, a scale."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glit.backends.tokenizer import TextTokenizer, tokenizer_hash
from glit.bench.random_clip import VIT_B_16, ClipShape, write_random_clip
from glit.bench.random_dataset import WORDS, DatasetShape, write_random_dataset
from glit.images import decode, encode_smaller
from glit.training.batch import Batch, PixelPlace, collate
from glit.training.config import TrainConfig
from glit.training.loader import BatchLoader
from glit.training.optimizer import parameter_groups
from glit.training.planning import plan_sample
from glit.training.sample import PlannedSample
from glit.training.setup import Ingredients

CLIP_VOCABULARY = 49_408


def clip_folder(shape: ClipShape, scratch: Path) -> Path:
    """A CLIP of random weights, with as many token embeddings as CLIP has if it is full-size."""
    rows = CLIP_VOCABULARY if shape is VIT_B_16 else 0
    return write_random_clip(
        scratch / "clip",
        shape,
        seed=0,
        corpus=[" ".join(WORDS)] * 3,
        vocabulary=900,
        embedding_rows=rows,
    )


def dataset_folder(clip: Path, folder: Path, shape: DatasetShape, *, max_side: int = 0) -> Path:
    """A made-up dataset; with ``max_side`` its images and boxes are made smaller, as pack does."""

    def smaller(index: int, row: dict[str, Any]) -> None:
        data, width, height = encode_smaller(decode(row["image"]["bytes"]), max_side=max_side)
        scale = width / row["width"]
        for region in row["regions"]:
            region.update({k: region[k] * scale for k in ("x0", "y0", "x1", "y1")})
        row["image"]["bytes"], row["width"], row["height"] = data, width, height

    identity = {"name": "random", "sha256": tokenizer_hash(clip), "context": 248}
    return write_random_dataset(
        folder,
        shape,
        seed=0,
        encode=TextTokenizer(clip).encode,
        tokenizer=identity,
        change=smaller if max_side else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long something took; CPU seconds stay true on a machine that others use too."""

    wall_s: float
    cpu_s: float


def timed(work: Callable[[], Any]) -> Timing:
    """Do it once, and say how long it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Timing(wall_s=time.perf_counter() - wall, cpu_s=time.process_time() - cpu)


def planned_samples(loader: BatchLoader) -> list[PlannedSample]:
    """Every sample of the loader's dataset, in order."""
    config = loader.config
    groups = [loader.dataset.row_group(number) for number in range(len(loader.dataset.places))]
    return [
        plan_sample(
            group,
            row,
            loader.objective,
            side=config.side,
            fit=config.fit,
            draw=np.random.default_rng(0),
        )
        for group in groups
        for row in range(len(group))
    ]


def still_optimizer(made: Ingredients, config: TrainConfig) -> torch.optim.AdamW:
    """A run's optimiser at learning rate zero, so that every step does the same."""
    groups = parameter_groups(made.model, made.objective, config)
    return torch.optim.AdamW([{**group, "lr": 0.0} for group in groups])


def collated(made: Ingredients, samples: list[PlannedSample]) -> tuple[Batch, list[PixelPlace]]:
    """A batch of samples without their pixels, and where these go."""
    config = made.loader.config
    return collate(
        samples,
        made.loader.tokenize,
        made.objective.needs,
        side=config.side,
        context=config.context,
        pad_id=config.pad_id,
    )


def with_pixels(made: Ingredients, samples: list[PlannedSample]) -> Batch:
    """A batch of samples, decoded."""
    batch, places = collated(made, samples)
    for sample, place in zip(samples, places, strict=True):
        sample.write_pixels(place.whole, place.crops, fit=made.loader.config.fit)
    return batch
