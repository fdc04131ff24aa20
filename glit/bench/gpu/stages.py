"""FLISM and LISM: proposers by precision, crops through CLIP, then all stages of either."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from glit.backends.gpu.halves import FAST_PATH
from glit.backends.matchers.clip import ClipMatcher
from glit.bench.gpu.bench import Bench, largest, row
from glit.bench.gpu.matrix import products_in
from glit.bench.harness import Row
from glit.bench.lism_flism.columns import COLUMNS, Images, Method, total_s
from glit.bench.lism_flism.fixed import fixed_boxes
from glit.bench.lism_flism.in_glit import InGlit
from glit.bench.lism_flism.inputs import scenes, with_sentences
from glit.bench.lism_flism.models import Models, make_random
from glit.images import Pixels, decode
from glit.recipes.config import Precision
from glit.runtime.cores import usable_cores
from glit.runtime.verified_paths import leave_out
from glit.stages.propose import ProposeStage
from glit.stages.score import ScoreConfig, ScoreStage

_NUM_DRAWN = 8
_ON_CPU = ("float32", "bfloat16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a proposer multiplies."""

    precision: Precision
    rate: str
    """The matrix part's, against which it is held."""
    plain: bool = False
    """Without products of halves in the place of those of float32."""


YOLOS_WAYS = {
    "float32": Way(precision="float32", rate="float32"),
    "bfloat16": Way(precision="bfloat16", rate="bfloat16"),
}
SAM_WAYS = {
    "float32": Way(precision="float32", rate="float16"),  # in halves
    "float32, as torch multiplies": Way(precision="float32", rate="float32", plain=True),
    "float32, products in tf32": Way(precision="float32", rate="tf32", plain=True),
    "bfloat16": Way(precision="bfloat16", rate="bfloat16"),
    "float16": Way(precision="float16", rate="float16"),
}


def measure(bench: Bench) -> Iterator[Row]:
    """Proposers and CLIP by themselves, then the stages of FLISM and of LISM."""
    scale = bench.scale
    drawn = scenes(
        bench.scratch / "scenes", num=_NUM_DRAWN, side_px=scale.sizes.scene_px, image_format="jpeg"
    )
    pixels = [decode(drawn.store.read(sample.source_path)) for sample in drawn.samples]
    with torch.device(bench.device):
        models = make_random(
            scale.sizes, bench.scratch / "models", drawn.captions(), pixels[0], bench.device
        )
    yield from _proposer(bench, models, "flism", "YOLOS", YOLOS_WAYS, pixels)
    yield from _crops(bench, models, pixels)
    yield from _proposer(bench, models, "lism", "SAM, all masks", SAM_WAYS, pixels[:4])
    yield _all_stages(bench, models, "flism", _repeated(drawn, scale.num_flism))
    yield _all_stages(bench, models, "lism", _repeated(drawn, scale.num_lism))


def _proposer(
    bench: Bench,
    models: Models,
    method: Method,
    name: str,
    ways: dict[str, Way],
    images: list[Pixels],
) -> Iterator[Row]:
    """Images a second of a proposer in every precision."""
    for words, way in ways.items():
        if bench.device == "cpu" and words not in _ON_CPU:
            continue
        config = dataclasses.replace(models.recipes[method].propose, precision=way.precision)
        backend = ProposeStage.backend(config)
        plain = leave_out(FAST_PATH) if way.plain else contextlib.nullcontext()
        with plain, products_in("tf32" if way.rate == "tf32" else "ieee"):
            detector = backend.make(backend.settled(config), models.proposers[method])
            yield bench.figure(
                f"{name}, {words}", lambda each=detector: each.detect(images), repeats=1,
                number=len(images), unit="images/s", precision=way.rate,
                bottleneck="resizing, then masks or boxes",
            )  # fmt: skip
        del detector


def _crops(bench: Bench, models: Models, images: list[Pixels]) -> Iterator[Row]:
    """Crops a second through CLIP, cutting included."""
    config = ScoreStage.backend(ScoreConfig()).settled(ScoreConfig(device=bench.device))
    matcher = ClipMatcher(config, models.matcher)
    fixed = bench.scale.sizes.num_fixed
    boxes = [np.array(fixed_boxes(i.shape[1], i.shape[0], fixed), dtype=float) for i in images]
    yield bench.figure(
        "CLIP, crops cut and encoded", lambda: matcher.embed_regions(images, boxes),
        number=sum(map(len, boxes)), unit="crops/s", precision=config.precision,
        bottleneck="upload and cutting",
    )  # fmt: skip


def _all_stages(bench: Bench, models: Models, method: Method, images: Images) -> Row:
    """Images a second from propose to pack, and in which part the time goes."""
    column = next(each for each in COLUMNS if each.method == method and each.in_glit)
    scratch = bench.scratch / column.key
    job = models.job(column, device=bench.device, threads=usable_cores(), scratch=scratch)
    batch = with_sentences(images, models.matcher, models.recipes[method].split)
    stages = InGlit(job)
    stages.run(batch)
    found = stages.run(batch)
    rate, bottleneck = len(batch.samples) / total_s(found), largest(found["parts_s"])
    return row(f"{method.upper()}, propose to pack", rate, "images/s", bottleneck=bottleneck)


def _repeated(drawn: Images, number: int) -> Images:
    """So many images; of many, each is used several times under names of its own."""
    samples = tuple(
        dataclasses.replace(drawn.samples[index % len(drawn.samples)], sample_id=f"{index:064x}")
        for index in range(number)
    )
    return dataclasses.replace(drawn, samples=samples)
