"""LISM: whole stages with SAM of full size, by precision; agreement of boxes on trained weights."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import numpy as np

from glit.backends.proposers.sam import SamDetector
from glit.backends.split_products import FAST_PATH
from glit.backends.weights import Resolved, resolve
from glit.bench.gpu import models
from glit.bench.gpu.bench import Bench, row
from glit.bench.gpu.matrix import products_in
from glit.bench.gpu.stages import fastest, opened, report_stages
from glit.bench.harness import Row
from glit.bench.lism_flism.operations import sam_image
from glit.data.geometry import iou
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
    drawn = models.images(bench, bench.scale.num_lism)
    first = models.pixels(drawn)[0]
    sam, clip = models.sam(bench, first), models.clip(bench, models.captions(drawn))
    for name in known:
        precision, products = PRECISIONS[name]
        with products_in(products):
            detector = _detector(name, bench.device, sam)
            some = models.pixels(drawn)[:4]
            seconds = bench.seconds(lambda d=detector, s=some: d.detect(s), repeats=1) / len(some)
        points = bench.scale.sizes.points_per_side**2
        operations = sum(sam_image(detector.masks.model, points).values())
        rate = _RATES.get(name, precision)
        yield row(
            f"SAM, all masks, {name}",
            1 / seconds,
            "images/s",
            limit=bench.limit(operations, rate),
            bottleneck="products" if name == PLAIN else "masks",
        )
        del detector
    stages, batch = opened(bench, "lism", sam, clip, drawn)
    result = fastest(bench, stages, batch, repeats=1)
    yield from report_stages(bench, "LISM, propose to pack", result, len(batch.samples))
    one = dataclasses.replace(batch, samples=batch.samples[:1])
    yield from bench.kernels("LISM, an image", lambda: stages.run(one))


def _agreement(bench: Bench, names: list[str]) -> Iterator[Row]:
    """The mini segmenter's boxes in every precision against the CPU's in float32."""
    images = models.mini_scenes(bench)
    wanted = _boxes("float32", "cpu", images)
    for name in names:
        found = _boxes(name, bench.device, images)
        yield row(
            f"mini SAM's boxes that keep an IoU of {SAME_BOX}, {name}",
            share_kept(wanted, found, SAME_BOX),
            "of 1",
            limit=1.0,
            bottleneck="rounding",
        )


def _detector(name: str, device: Device, model: Resolved) -> SamDetector:
    config = ProposeConfig(backend="sam", device=device, precision=PRECISIONS[name][0])
    plain = name not in ("float32", "bfloat16", "float16")
    with leave_out(FAST_PATH) if plain else contextlib.nullcontext():
        return SamDetector(config, model)


def _boxes(name: str, device: Device, images: list[Pixels]) -> list[np.ndarray]:
    with products_in(PRECISIONS[name][1]):
        found = _detector(name, device, resolve("mini-segmenter")).detect(images)
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
