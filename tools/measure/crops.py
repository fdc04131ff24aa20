"""Crops: cut on the device from the decoded image, against one CLIPProcessor call per crop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from glit.backends.matchers.clip import ClipMatcher
from glit.backends.matchers.crops import cut_crops, whole_pixel_boxes
from glit.backends.weights import resolve
from glit.images import Pixels
from glit.stages.score import ScoreConfig
from tools.measure.paired import Comparison, compare


@dataclass(frozen=True, slots=True, kw_only=True)
class CropReport:
    """Speed and agreement of the two ways."""

    speed: Comparison
    cosines: np.ndarray
    """[crops] cosine between the embeddings of the two ways."""


def random_boxes(image: Pixels, number: int, rng: np.random.Generator) -> np.ndarray:
    """Boxes between a tenth and nine tenths of the sides, whole pixels. [number, 4]"""
    height, width = image.shape[:2]
    sides = rng.uniform(0.1, 0.9, (number, 2)) * (width, height)
    corner = rng.uniform(0, 1, (number, 2)) * ((width, height) - sides)
    return np.concatenate([corner, corner + sides], axis=1).round()


def compare_crops(
    images: Sequence[Pixels],
    model: str,
    *,
    backend: str,
    per_image: int = 16,
    repeats: int = 5,
    seed: int = 0,
) -> CropReport:
    """Both ways over the same boxes, and the cosine of what the encoder makes of them.

    Args:
        images: decoded photographs.
        model: a CLIP.
        backend: the processor's: ``pil`` (CLIP's own way) or ``torchvision``.
        per_image: random boxes in each image.
        repeats: counted pairs of runs.
        seed: of the boxes.
    """
    from transformers import CLIPImageProcessor, CLIPImageProcessorPil, CLIPProcessor

    matcher = ClipMatcher(ScoreConfig(model=model, device="cpu"), resolve(model))
    path = str(resolve(model).path)
    kind: Any = {"pil": CLIPImageProcessorPil, "torchvision": CLIPImageProcessor}[backend]
    processor: Any = CLIPProcessor(
        kind.from_pretrained(path, local_files_only=True), matcher.tokenizer.hf
    )
    rng = np.random.default_rng(seed)
    boxes = [random_boxes(image, per_image, rng) for image in images]

    def ours() -> list[Any]:
        return [
            cut_crops(i, b, matcher.spec, device="cpu") for i, b in zip(images, boxes, strict=True)
        ]

    def processors() -> list[Any]:
        return [
            processor(images=Image.fromarray(image).crop(box), return_tensors="pt")["pixel_values"]
            for image, each in zip(images, boxes, strict=True)
            for box in whole_pixel_boxes(image, each)
        ]

    speed = compare(f"crops, {backend} processor", ours, processors, repeats=repeats)
    mine = np.concatenate([matcher.embed_inputs(batch).numpy() for batch in ours()])
    theirs = np.concatenate([matcher.embed_inputs(one).numpy() for one in processors()])
    return CropReport(speed=speed, cosines=(mine * theirs).sum(axis=1))


def photographs(folder: Path) -> list[Pixels]:
    """Every JPEG of a folder, decoded."""
    from glit.images import decode

    return [decode(path.read_bytes()) for path in sorted(folder.glob("*.jpg"))]
