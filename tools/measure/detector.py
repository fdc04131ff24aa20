"""YOLOS: the stage's detector against one image at a time through the library's processor."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glit.backends.proposers.yolos import YolosDetector
from glit.backends.weights import resolve
from glit.images import Pixels, decode
from glit.scenes import write_scenes
from glit.stages.propose import ProposeConfig
from tools.measure.paired import Comparison, compare


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorReport:
    """Speed, and the largest differences over all boxes."""

    speed: Comparison
    box_px: float
    score: float


def compare_yolos(*, num_images: int = 128, repeats: int = 5) -> DetectorReport:
    """Both ways over the same scenes, float32, one thread."""
    detector = YolosDetector(ProposeConfig(batch_size=32, device="cpu"), resolve("mini-proposer"))
    with tempfile.TemporaryDirectory() as folder:
        write_scenes(Path(folder), num=num_images, seed=2_600_000)
        images = [decode(path.read_bytes()) for path in sorted(Path(folder).glob("images/*"))]

    def library() -> list[dict[str, Any]]:
        return [_through_the_library(detector, image) for image in images]

    speed = compare("yolos", lambda: detector.detect(images), library, repeats=repeats)
    box_px, score = _differences(detector, images, library())
    return DetectorReport(speed=speed, box_px=box_px, score=score)


def _through_the_library(detector: YolosDetector, image: Pixels) -> dict[str, Any]:
    inputs = detector.processor(images=image, return_tensors="pt")
    with torch.inference_mode():
        outputs = detector.model(pixel_values=inputs["pixel_values"])
    return detector.processor.post_process_object_detection(
        outputs, threshold=0.5, target_sizes=[image.shape[:2]]
    )[0]


def _differences(
    detector: YolosDetector, images: list[Pixels], wanted: list[dict[str, Any]]
) -> tuple[float, float]:
    box_px = score = 0.0
    for image, regions, theirs in zip(images, detector.detect(images), wanted, strict=True):
        order = theirs["scores"].argsort(descending=True, stable=True)
        limits = np.array([image.shape[1], image.shape[0]] * 2)
        boxes = np.clip(theirs["boxes"][order].numpy(), 0, limits)
        assert len(regions) == len(boxes)
        for region, box, value in zip(regions, boxes, theirs["scores"][order], strict=True):
            box_px = max(box_px, float(np.abs(np.array(region.box.xyxy) - box).max()))
            score = max(score, abs(region.score - float(value)))
    return box_px, score
