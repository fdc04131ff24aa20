"""LISM: whole stages with SAM of full size, by precision; agreement of boxes on trained weights."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import numpy as np
import torch

from glit.backends.gpu.halves import FAST_PATH
from glit.backends.proposers.sam import SamDetector
from glit.backends.sam.model import build_sam
from glit.backends.weights import Resolved, resolve
from glit.bench.gpu import models
from glit.bench.gpu.bench import Bench, agreement, row
from glit.bench.gpu.matrix import products_in
from glit.bench.harness import Row
from glit.bench.lism_flism.operations import sam_image
from glit.images import Pixels
from glit.recipes.config import Device, Precision
from glit.runtime.verified_paths import leave_out
from glit.stages.propose import ProposeConfig

PLAIN = "float32, as torch multiplies"
"""Without products of halves in its place."""
PRECISIONS: dict[str, tuple[Precision, str]] = {
    "float32": ("float32", "ieee"),
    PLAIN: ("float32", "ieee"),
    "float32, products in tf32": ("float32", "tf32"),
    "bfloat16": ("bfloat16", "ieee"),
    "float16": ("float16", "ieee"),
}
"""Our precision, and what torch is told of products in float32."""
_RATES = {"float32, products in tf32": "tf32"}
_ON_CPU = ("float32", "bfloat16")
SAME_BOX = 0.98
"""IoU from which on two boxes count as the same."""


def measure(bench: Bench) -> Iterator[Row]:
    """SAM in every precision, then all stages."""
    known = [name for name in PRECISIONS if bench.device == "cuda" or name in _ON_CPU]
    yield from _agreement(bench, known)
    drawn, sizes = models.images(bench, bench.scale.num_lism), bench.scale.sizes
    some = drawn.pixels()[:4]
    sam, clip = models.sam(bench, some[0]), models.clip(bench, drawn.captions())
    with torch.device("meta"):
        operations = sum(sam_image(build_sam(sizes.sam), sizes.points_per_side**2).values())
    for name in known:
        precision, products = PRECISIONS[name]
        with products_in(products):
            detector = _detector(name, bench.device, sam)
            seconds = bench.seconds(lambda d=detector: d.detect(some), repeats=1) / len(some)
        limit = bench.limit(operations, _RATES.get(name, precision))
        bottleneck = "products" if name == PLAIN else "masks"
        what = f"SAM, all masks, {name}"
        yield row(what, 1 / seconds, "images/s", limit=limit, bottleneck=bottleneck)
        del detector
    stages, batch = models.stages(bench, "lism", sam, clip, drawn)
    yield from models.stage_rows(bench, "LISM, propose to pack", stages, batch, 1)
    one = dataclasses.replace(batch, samples=batch.samples[:1])
    yield from bench.kernels("LISM, an image", lambda: stages.run(one))


def _agreement(bench: Bench, names: list[str]) -> Iterator[Row]:
    """The mini segmenter's boxes in every precision against the CPU's in float32."""
    images = models.mini_scenes(bench)
    wanted = _boxes("float32", "cpu", images)
    for name in names:
        share = models.share_kept(wanted, _boxes(name, bench.device, images), SAME_BOX)
        yield agreement(f"mini SAM's boxes that keep an IoU of {SAME_BOX}, {name}", share)


def _detector(name: str, device: Device, model: Resolved) -> SamDetector:
    config = ProposeConfig(backend="sam", device=device, precision=PRECISIONS[name][0])
    plain = name not in ("float32", "bfloat16", "float16")
    with leave_out(FAST_PATH) if plain else contextlib.nullcontext():
        return SamDetector(config, model)


def _boxes(name: str, device: Device, images: list[Pixels]) -> list[np.ndarray]:
    with products_in(PRECISIONS[name][1]):
        found = _detector(name, device, resolve("mini-segmenter")).detect(images)
    return models.boxes_of(found)
