"""Models of full size with random weights, made on the device, and what they are measured on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glit.backends.tokenizer import TextTokenizer, tokenizer_hash
from glit.backends.weights import Resolved
from glit.bench.gpu.bench import Bench, largest, row
from glit.bench.harness import Row
from glit.bench.lism_flism.columns import COLUMNS, Images, Method, total_s
from glit.bench.lism_flism.in_glit import InGlit
from glit.bench.lism_flism.inputs import scenes, with_sentences
from glit.bench.lism_flism.models import (
    Models,
    made_by_glit,
    random_clip,
    random_sam,
    random_yolos,
    recipes_for,
)
from glit.bench.lism_flism.run import Request, job_of
from glit.bench.random_dataset import DatasetShape, write_random_dataset
from glit.data.geometry import iou
from glit.data.records import Region
from glit.images import Pixels
from glit.runtime.cores import usable_cores
from glit.training.batch import Batch as TrainingBatch
from glit.training.config import TrainConfig
from glit.training.setup import Ingredients, prepare

_NUM_DRAWN = 8
NUM_BATCHES = 4
"""Of the dataset that is trained on."""


def clip(bench: Bench, corpus: list[str]) -> Resolved:
    """CLIP's folder."""
    with torch.device(bench.device):
        return made_by_glit(random_clip(bench.scale.sizes, bench.scratch / "clip", corpus))


def yolos(bench: Bench) -> Resolved:
    """YOLOS' folder."""
    with torch.device(bench.device):
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


def mini_scenes(bench: Bench) -> list[Pixels]:
    """Scenes of the size that the mini models were trained on."""
    folder = bench.scratch / "mini-scenes"
    drawn = scenes(folder, num=bench.scale.num_compared, side_px=128, image_format="png")
    return drawn.pixels()


def boxes_of(found: list[list[Region]]) -> list[np.ndarray]:
    """Boxes of every image, [regions, 4] each."""
    return [np.array([r.box.xyxy for r in regions]).reshape(-1, 4) for regions in found]


def share_kept(wanted: list[np.ndarray], found: list[np.ndarray], least: float) -> float:
    """The share of boxes, over all images, that some box of the other way overlaps that much.

    >>> a, b = np.array([[0.0, 0, 2, 2], [0, 0, 9, 9]]), np.array([[0.0, 0, 2, 2]])
    >>> share_kept([a], [b], 0.9)
    0.5
    """
    overlaps = [
        iou(a, b).max(axis=1) if len(b) else np.zeros(len(a))
        for a, b in zip(wanted, found, strict=True)
    ]
    return float((np.concatenate(overlaps) >= least).mean())


def stages(
    bench: Bench, method: Method, proposer: Resolved, matcher: Resolved, images: Images
) -> tuple[InGlit, Images]:
    """The stages of a method, their models loaded, and the images cut into sentences."""
    request = Request(images=None, weights="random", device=bench.device, sizes=bench.scale.sizes)
    models = Models(
        recipes=recipes_for("random", bench.device), proposers={method: proposer}, matcher=matcher
    )
    batch = with_sentences(images, matcher, models.recipes[method].split)
    column = next(each for each in COLUMNS if each.method == method and each.in_glit)
    job = job_of(request, column, models, batch, bench.device, bench.scratch)
    return InGlit(job), batch


def stage_rows(bench: Bench, name: str, run: InGlit, batch: Images, repeats: int) -> Iterator[Row]:
    """Images a second of the quickest pass, and in which of its parts the time went."""
    run.run(batch)
    bench.finish()
    best = min((run.run(batch) for _ in range(repeats)), key=total_s)
    number, cores = len(batch.samples), usable_cores()
    yield row(name, number / total_s(best), "images/s", bottleneck=largest(best["parts_s"]))
    decoding = number * cores / max(best["decode_s"], 1e-9)
    yield row(f"{name}: decoding by {cores} threads", decoding, "images/s", bottleneck="cores")


def prepared(bench: Bench, model: str, *, batch_size: int, **changes: Any) -> Ingredients:
    """Model, objective and loader of a fast-goal run on a made-up dataset of some batches."""
    path, tokenizer = bench.scratch / f"dataset-{batch_size}", TextTokenizer(Path(model))
    width, height = bench.scale.sample_px
    if not path.exists():
        shape = DatasetShape(
            num_samples=NUM_BATCHES * batch_size, width=width, height=height, num_sentences=8,
            words=18, rows_per_group=64, rows_per_file=4096, distinct_images=64,
        )  # fmt: skip
        identity = {"name": "random", "sha256": tokenizer_hash(Path(model)), "context": 248}
        write_random_dataset(path, shape, seed=0, encode=tokenizer.encode, tokenizer=identity)
    config = TrainConfig(model=model, batch_size=batch_size, **changes)
    return prepare(config, str(path), pin_memory=bench.device == "cuda")


def first_batch(made: Ingredients) -> TrainingBatch:
    """The first batch of the first epoch."""
    epoch = made.loader.epoch(0)
    try:
        return next(epoch)[0]
    finally:
        epoch.close()
