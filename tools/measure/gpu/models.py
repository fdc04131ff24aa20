"""Matrix products, crops through CLIP, SAM by its steps."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from glit.bench.harness import Row, note
from glit.bench.lism_flism.fixed import fixed_boxes
from glit.bench.lism_flism.models import made_by_glit, random_sam, recipes_for
from glit.images import Pixels
from glit.models.backends.matchers.clip import ClipMatcher
from glit.models.clip.random_clip import write_random_clip
from glit.recipes.config import Precision
from glit.stages.propose import ProposeStage
from glit.stages.score import ScoreConfig, ScoreStage
from tools.measure.gpu.bench import Bench, products_in, row

SHEETS = {
    "H200": {"16 bits": 989, "tf32": 494, "float32": 67},
    "H100": {"16 bits": 989, "tf32": 494, "float32": 67},
    "A100": {"16 bits": 312, "tf32": 156, "float32": 19.5},
    "L40S": {"16 bits": 362, "tf32": 183, "float32": 91},
}
"""NVIDIA's data sheets, SXM where there are several, without sparsity: TFLOP/s."""
SAM_PRECISIONS: Mapping[str, tuple[Precision, str]] = {
    "bfloat16": ("bfloat16", "bfloat16"),
    "float16": ("float16", "float16"),
    "float32, products in tf32": ("float32", "tf32"),
    "float32": ("float32", "float32"),
}
"""SAM's precision, and that of the matrix product that is its limit."""


def products(bench: Bench) -> Iterator[Row]:
    """Rates of large matrix products, which all limits come from."""
    name = torch.cuda.get_device_name() if bench.device == "cuda" else "cpu"
    sheet = next((sheet for key, sheet in SHEETS.items() if key in name), {})
    if bench.device == "cuda" and not sheet:
        yield note(f"no data sheet of {name} is known here: its matrix rates have no limit")
    for precision in ("float32", "tf32", "bfloat16", "float16"):
        limit = sheet.get("16 bits" if "16" in precision else precision)
        what, rate = f"matrix product {bench.scale.matrix_side}, {precision}", bench.rate(precision)
        yield row(what, rate / 1e12, "TFLOP/s", limit=limit, bottleneck="arithmetic")


def crops(bench: Bench) -> Iterator[Row]:
    """CLIP's crops: cut, encoded, and both."""
    drawn = bench.scenes(8 if bench.is_full else 1)
    images = bench.pixels(drawn)
    sizes = bench.scale.sizes
    clip = write_random_clip(
        bench.scratch / "clip", sizes.clip, seed=0, corpus=drawn.captions(), vocabulary=900,
        embedding_rows=sizes.embedding_rows,
    )  # fmt: skip
    config = ScoreStage.backend(ScoreConfig()).settled(ScoreConfig(device=bench.device))
    matcher = ClipMatcher(config, made_by_glit(clip))
    boxes = [
        np.array(fixed_boxes(i.shape[1], i.shape[0], sizes.num_fixed), dtype=float) for i in images
    ]
    number = sum(map(len, boxes))
    encoder = matcher.encoder

    def cut() -> torch.Tensor:
        parts = zip(images, boxes, strict=True)
        return torch.cat([encoder.cut(*each, matcher.preprocessing) for each in parts])

    seconds = bench.seconds(cut)
    yield row("CLIP, crops cut", number / seconds, "crops/s", bottleneck="launches")
    ready = cut()
    for size in (64, 256, 1024) if bench.is_full else (8,):
        batch = ready.repeat(-(-size // len(ready)), 1, 1, 1)[:size]
        yield bench.figure(
            f"CLIP, crops encoded, batches of {size}", lambda b=batch: encoder.embed_crops(b),
            number=size, unit="crops/s", precision=config.precision, bottleneck="arithmetic",
        )  # fmt: skip
    yield bench.figure(
        "CLIP, crops cut and encoded", lambda: matcher.embed_regions(images, boxes),
        number=number, unit="crops/s", precision=config.precision, bottleneck="upload and cutting",
    )  # fmt: skip


def sam(bench: Bench) -> Iterator[Row]:
    """SAM: all of it in every precision, then encoder, decoder and selection apart."""
    images = bench.pixels(bench.scenes(4 if bench.is_full else 1))
    with torch.device(bench.device):
        folder = random_sam(bench.scale.sizes, bench.scratch / "sam", images[0], bench.device)
    base = recipes_for("random", bench.device)["lism"].propose
    on_gpu = bench.device == "cuda"
    for words, (precision, rate) in SAM_PRECISIONS.items():
        if not on_gpu and words != "float32":
            continue
        config = dataclasses.replace(base, precision=precision)
        backend = ProposeStage.backend(config)
        with products_in(rate):
            detector: Any = backend.make(backend.settled(config), made_by_glit(folder))
            whole = bench.figure(
                f"SAM, all masks, {words}", lambda d=detector: d.detect(images), repeats=1,
                number=len(images), unit="images/s", precision=rate, bottleneck="encoder",
            )  # fmt: skip
            yield whole
        if words == ("bfloat16" if on_gpu else "float32"):
            parts = list(_sam_apart(bench, detector.masks, images, rate))
            yield from parts
            rest_s = 1 / whole["measured"] - 1 / parts[0]["measured"] - 1 / parts[-1]["measured"]
            what = f"SAM, masks, their selection and boxes, {rate}: the rest of the time"
            yield row(what, 1000 * rest_s, "ms/image")
        del detector


def _sam_apart(bench: Bench, masks: Any, images: Sequence[Pixels], rate: str) -> Iterator[Row]:
    """Images a second of the encoder, in three forms, and last of the decoder."""
    dtype, device = getattr(torch, rate), bench.device
    prepared = [masks.prepare(image) for image in images]

    def encoded(encoder: Any) -> list[torch.Tensor]:
        with torch.inference_mode(), torch.autocast(device, dtype, enabled=dtype != torch.float32):
            return [encoder(each.pixels_3SS[None]).last_hidden_state for each in prepared]

    encoder = masks.model.vision_encoder
    plain = copy.deepcopy(masks.model)
    plain.set_attn_implementation("eager")
    forms = {"": encoder, ", attention not fused": plain.vision_encoder}
    for words, each in forms.items():
        yield bench.figure(
            f"SAM, encoder{words}, {rate}", lambda e=each: encoded(e), number=len(images),
            unit="images/s", precision=rate, bottleneck="relative positions", repeats=1,
        )  # fmt: skip
    del plain, forms
    yield bench.tried(
        f"SAM, encoder compiled, {rate}", lambda: torch.compile(encoder, backend=bench.compiler),
        encoded, number=len(images), unit="images/s",
    )  # fmt: skip
    embeddings = encoded(encoder)

    def decoded() -> None:
        with torch.inference_mode():
            for image, embedding in zip(prepared, embeddings, strict=True):
                decoder = masks._decoder
                known = decoder.project_images(embedding)
                for points in image.points_P2[None].split(128, dim=1):
                    decoder.decode(known, points)

    yield bench.figure(
        f"SAM, decoder without its masks, {rate}", decoded, number=len(images), unit="images/s",
        precision=rate, bottleneck="attention", repeats=1,
    )  # fmt: skip
