"""What a training step is measured on: a made-up dataset, and a batch of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glit.backends.tokenizer import TextTokenizer, tokenizer_hash
from glit.bench.gpu.bench import Bench
from glit.bench.random_dataset import DatasetShape, write_random_dataset
from glit.training.batch import Batch
from glit.training.config import TrainConfig
from glit.training.setup import Ingredients, prepare

NUM_BATCHES = 4


def prepared(bench: Bench, model: str, *, batch_size: int, **changes: Any) -> Ingredients:
    """Model, objective and loader of a fast-goal run on a made-up dataset of some batches."""
    path, tokenizer = bench.scratch / f"dataset-{batch_size}", TextTokenizer(Path(model))
    width, height = bench.scale.sample_px
    if not path.exists():
        write_random_dataset(
            path,
            DatasetShape(
                num_samples=NUM_BATCHES * batch_size,
                width=width,
                height=height,
                num_sentences=8,
                words=18,
                rows_per_group=64,
                rows_per_file=4096,
                distinct_images=64,
            ),
            seed=0,
            encode=tokenizer.encode,
            tokenizer={"name": "random", "sha256": tokenizer_hash(Path(model)), "context": 248},
        )
    config = TrainConfig(model=model, batch_size=batch_size, **changes)
    return prepare(config, str(path), pin_memory=bench.device == "cuda")


def first_batch(made: Ingredients) -> Batch:
    """The first batch of the first epoch."""
    epoch = made.loader.epoch(0)
    try:
        return next(epoch)[0]
    finally:
        epoch.close()
