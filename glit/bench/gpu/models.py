"""Models of full size with random weights, made on the device, and what they are measured on."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glit.backends.tokenizer import TextTokenizer, tokenizer_hash
from glit.backends.weights import Resolved
from glit.bench.gpu.bench import Bench
from glit.bench.lism_flism.inputs import Images, scenes
from glit.bench.lism_flism.models import made_by_glit, random_sam, random_yolos
from glit.bench.random_clip import write_random_clip
from glit.bench.random_dataset import DatasetShape, write_random_dataset
from glit.images import Pixels, decode
from glit.training.batch import Batch
from glit.training.config import TrainConfig
from glit.training.setup import Ingredients, prepare

_NUM_DRAWN = 8
NUM_BATCHES = 4
"""Of the dataset that is trained on."""


@contextlib.contextmanager
def made_on(device: str) -> Iterator[None]:
    """Tensors that are made inside without saying where are made on the device."""
    import torch

    with torch.device(device):
        yield


def clip(bench: Bench, corpus: list[str]) -> Resolved:
    """CLIP's folder."""
    sizes = bench.scale.sizes
    with made_on(bench.device):
        folder = write_random_clip(
            bench.scratch / "clip",
            sizes.clip,
            seed=0,
            corpus=corpus,
            vocabulary=1200,
            embedding_rows=sizes.embedding_rows,
        )
    return made_by_glit(folder)


def yolos(bench: Bench) -> Resolved:
    """YOLOS' folder."""
    with made_on(bench.device):
        return made_by_glit(random_yolos(bench.scale.sizes, bench.scratch / "yolos"))


def sam(bench: Bench, first: Pixels) -> Resolved:
    """SAM's folder; as many masks pass its threshold as with trained weights."""
    folder = bench.scratch / "sam"
    return made_by_glit(random_sam(bench.scale.sizes, folder, first, bench.device))


def images(bench: Bench, num: int) -> Images:
    """Scenes as JPEGs; of many, each is used several times under names of its own."""
    drawn = scenes(
        bench.scratch / "scenes",
        num=min(num, _NUM_DRAWN),
        side_px=bench.scale.sizes.scene_px,
        image_format="jpeg",
    )
    samples = tuple(
        dataclasses.replace(drawn.samples[number % len(drawn.samples)], sample_id=f"{number:064x}")
        for number in range(num)
    )
    return dataclasses.replace(drawn, samples=samples)


def captions(images: Images) -> list[str]:
    """The scenes' captions."""
    return [sample.caption.text for sample in images.samples if sample.caption]


def pixels(images: Images) -> list[Pixels]:
    """Every image, decoded."""
    return [decode(images.store.read(sample.source_path)) for sample in images.samples]


def mini_scenes(bench: Bench) -> list[Pixels]:
    """Scenes of the size that the mini models were trained on."""
    folder = bench.scratch / "mini-scenes"
    drawn = scenes(folder, num=bench.scale.num_compared, side_px=128, image_format="png")
    return pixels(drawn)


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
