"""FLISM: YOLOS, crops and CLIP by themselves, then the whole stages."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glit.backends.matchers.clip import ClipMatcher
from glit.backends.matchers.crops import cut_crops
from glit.backends.proposers.yolos import YolosDetector
from glit.bench.gpu import models
from glit.bench.gpu.bench import Bench, row
from glit.bench.gpu.stages import fastest, opened, report_stages
from glit.bench.harness import Row
from glit.bench.lism_flism.fixed import fixed_boxes
from glit.bench.lism_flism.operations import clip_crop, yolos_image
from glit.stages.propose import ProposeConfig, ProposeStage
from glit.stages.score import ScoreConfig, ScoreStage


def measure(bench: Bench) -> Iterator[Row]:
    """YOLOS and CLIP by themselves, then all stages."""
    drawn = models.images(bench, bench.scale.num_flism)
    yolos, clip = models.yolos(bench), models.clip(bench, models.captions(drawn))
    some = models.pixels(drawn)[: min(16, bench.scale.num_flism)]
    yield from _detector(bench, YolosDetector(ProposeConfig(device=bench.device), yolos), some)
    yield from _matcher(bench, ClipMatcher(ScoreConfig(device=bench.device), clip), some)
    stages, batch = opened(bench, "flism", yolos, clip, drawn)
    result = fastest(bench, stages, batch)
    yield from report_stages(bench, "FLISM, propose to pack", result, len(batch.samples))
    yield from bench.kernels("FLISM, propose to pack", lambda: stages.run(batch))


def _detector(bench: Bench, detector: YolosDetector, images: list[np.ndarray]) -> Iterator[Row]:
    import torch

    config = ProposeStage.backend(ProposeConfig()).settled(ProposeConfig(device=bench.device))
    inputs = torch.stack([detector.prepare(image) for image in images]).to(detector.model.dtype)
    operations = yolos_image(detector.model.config, *inputs.shape[-2:])

    def forward() -> None:
        with torch.inference_mode():
            detector.model(pixel_values=inputs)

    alone = len(images) / bench.seconds(forward)
    yield row(
        f"YOLOS alone, {len(images)} images of {inputs.shape[-2]} x {inputs.shape[-1]}",
        alone,
        "images/s",
        limit=bench.limit(operations, config.precision),
        bottleneck="attention and memory",
    )
    whole = len(images) / bench.seconds(lambda: detector.detect(images))
    yield row(
        "YOLOS with resizing and boxes",
        whole,
        "images/s",
        limit=alone,
        bottleneck="resizing and boxes",
    )


def _matcher(bench: Bench, matcher: ClipMatcher, images: list[np.ndarray]) -> Iterator[Row]:
    import torch

    config = ScoreStage.backend(ScoreConfig()).settled(ScoreConfig(device=bench.device))
    number = bench.scale.sizes.num_fixed
    boxes = [np.array(fixed_boxes(i.shape[1], i.shape[0], number), dtype=float) for i in images]
    total = sum(map(len, boxes))
    crops = torch.randn(config.batch_size, 3, matcher.spec.side, matcher.spec.side)
    crops = crops.to(bench.device)
    alone = len(crops) / bench.seconds(lambda: matcher.embed_inputs(crops))
    operations = clip_crop(matcher.model.config.vision_config)
    yield row(
        f"CLIP alone, {len(crops)} crops",
        alone,
        "crops/s",
        limit=bench.limit(operations, config.precision),
        bottleneck="arithmetic",
    )
    cut = bench.seconds(
        lambda: [
            cut_crops(image, each, matcher.spec, device=bench.device)
            for image, each in zip(images, boxes, strict=True)
        ]
    )
    yield row("cutting crops", total / cut, "crops/s", bottleneck="kernel launches")
    both = total / bench.seconds(lambda: matcher.embed_regions(images, boxes))
    yield row("CLIP with cutting", both, "crops/s", limit=alone, bottleneck="upload and cutting")
