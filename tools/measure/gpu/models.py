"""Matrix products, proposers by precision, crops through CLIP."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np
import torch

from glit.backends.matchers.clip import ClipMatcher
from glit.bench.harness import Row, note
from glit.bench.lism_flism.columns import Method
from glit.bench.lism_flism.fixed import fixed_boxes
from glit.bench.lism_flism.inputs import scenes
from glit.bench.lism_flism.models import Models, make_random
from glit.images import Pixels, decode
from glit.recipes.config import Precision
from glit.stages.propose import ProposeStage
from glit.stages.score import ScoreConfig, ScoreStage
from tools.measure.gpu.bench import Bench, products_in, row

_NUM_DRAWN = 8


SHEETS = {
    "H200": {"16 bits": 989, "tf32": 494, "float32": 67},
    "H100": {"16 bits": 989, "tf32": 494, "float32": 67},
    "A100": {"16 bits": 312, "tf32": 156, "float32": 19.5},
    "L40S": {"16 bits": 362, "tf32": 183, "float32": 91},
}
"""NVIDIA's data sheets, SXM where there are several, without sparsity: TFLOP/s."""
Ways = Mapping[str, tuple[Precision, str]]
"""A proposer's precision, and that of the matrix product that is its limit."""
YOLOS_WAYS: Ways = {"float32": ("float32", "float32"), "bfloat16": ("bfloat16", "bfloat16")}
SAM_WAYS: Ways = {
    "float32": ("float32", "float32"),
    "float32, products in tf32": ("float32", "tf32"),
    "bfloat16": ("bfloat16", "bfloat16"),
    "float16": ("float16", "float16"),
}


def measure(bench: Bench) -> Iterator[Row]:
    """Products, then the models of FLISM and LISM, each by itself."""
    scale = bench.scale
    yield from _products(bench)
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


def _products(bench: Bench) -> Iterator[Row]:
    """Rates of large matrix products, which all limits come from."""
    name = torch.cuda.get_device_name() if bench.device == "cuda" else "cpu"
    sheet = next((sheet for key, sheet in SHEETS.items() if key in name), {})
    if bench.device == "cuda" and not sheet:
        yield note(f"no data sheet of {name} is known here: its matrix rates have no limit")
    for precision in ("float32", "tf32", "bfloat16", "float16"):
        limit = sheet.get("16 bits" if "16" in precision else precision)
        what, rate = f"matrix product {bench.scale.matrix_side}, {precision}", bench.rate(precision)
        yield row(what, rate / 1e12, "TFLOP/s", limit=limit, bottleneck="arithmetic")


def _proposer(
    bench: Bench,
    models: Models,
    method: Method,
    name: str,
    ways: Ways,
    images: list[Pixels],
) -> Iterator[Row]:
    """Images a second of a proposer in every precision."""
    for words, (precision, rate) in ways.items():
        if bench.device == "cpu" and words not in YOLOS_WAYS:
            continue
        config = dataclasses.replace(models.recipes[method].propose, precision=precision)
        backend = ProposeStage.backend(config)
        with products_in(rate):
            detector = backend.make(backend.settled(config), models.proposers[method])
            yield bench.figure(
                f"{name}, {words}", lambda each=detector: each.detect(images), repeats=1,
                number=len(images), unit="images/s", precision=rate,
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
