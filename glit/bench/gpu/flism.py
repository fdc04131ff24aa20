"""FLISM: YOLOS, crops and CLIP by themselves, then the whole stages."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from glit.backends.matchers.clip import ClipMatcher
from glit.backends.matchers.crops import cut_crops
from glit.backends.proposers.yolos import YolosDetector
from glit.bench.gpu import models
from glit.bench.gpu.bench import Bench, row
from glit.bench.harness import Row
from glit.bench.lism_flism.fixed import fixed_boxes
from glit.bench.lism_flism.operations import clip_crop, yolos_image
from glit.stages.propose import ProposeConfig, ProposeStage
from glit.stages.score import ScoreConfig, ScoreStage


def measure(bench: Bench) -> Iterator[Row]:
    """YOLOS and CLIP by themselves, then all stages."""
    drawn = models.images(bench, bench.scale.num_flism)
    yolos, clip = models.yolos(bench), models.clip(bench, drawn.captions())
    some = drawn.pixels()[: min(16, bench.scale.num_flism)]
    yield from _detector(bench, YolosDetector(ProposeConfig(device=bench.device), yolos), some)
    yield from _matcher(bench, ClipMatcher(ScoreConfig(device=bench.device), clip), some)
    stages, batch = models.stages(bench, "flism", yolos, clip, drawn)
    name = "FLISM, propose to pack"
    yield from models.stage_rows(bench, name, stages, batch, 2)
    yield from bench.kernels(name, lambda: stages.run(batch))


def _detector(bench: Bench, detector: YolosDetector, images: list[np.ndarray]) -> Iterator[Row]:
    config = ProposeStage.backend(ProposeConfig()).settled(ProposeConfig(device=bench.device))
    inputs = torch.stack([detector.prepare(image) for image in images]).to(detector.model.dtype)
    number, height, width = len(images), *inputs.shape[-2:]

    def forward() -> None:
        with torch.inference_mode():
            detector.model(pixel_values=inputs)

    alone = number / bench.seconds(forward)
    what = f"YOLOS alone, {number} images of {height} x {width}"
    limit = bench.limit(yolos_image(detector.model.config, height, width), config.precision)
    yield row(what, alone, "images/s", limit=limit, bottleneck="attention and memory")
    what, whole = "YOLOS with resizing and boxes", bench.seconds(lambda: detector.detect(images))
    yield row(what, number / whole, "images/s", limit=alone, bottleneck="resizing and boxes")


def _matcher(bench: Bench, matcher: ClipMatcher, images: list[np.ndarray]) -> Iterator[Row]:
    config = ScoreStage.backend(ScoreConfig()).settled(ScoreConfig(device=bench.device))
    fixed = bench.scale.sizes.num_fixed
    boxes = [np.array(fixed_boxes(i.shape[1], i.shape[0], fixed), dtype=float) for i in images]
    total, side = sum(map(len, boxes)), matcher.spec.side
    crops = torch.randn(config.batch_size, 3, side, side).to(bench.device)
    alone = len(crops) / bench.seconds(lambda: matcher.embed_inputs(crops))
    limit = bench.limit(clip_crop(matcher.model.config.vision_config), config.precision)
    what = f"CLIP alone, {len(crops)} crops"
    yield row(what, alone, "crops/s", limit=limit, bottleneck="arithmetic")

    def cut() -> None:
        for image, each in zip(images, boxes, strict=True):
            cut_crops(image, each, matcher.spec, device=bench.device)

    rate = total / bench.seconds(cut)
    yield row("cutting crops", rate, "crops/s", bottleneck="kernel launches")
    both = total / bench.seconds(lambda: matcher.embed_regions(images, boxes))
    yield row("CLIP with cutting", both, "crops/s", limit=alone, bottleneck="upload and cutting")
