"""Candidates of one image the scripts' way: SAM's masks, or YOLOS' boxes and the grid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Protocol

import numpy as np
from PIL import Image

from glit.backends.device import pick_device
from glit.backends.protocols import ProposerConfig
from glit.bench.lism_flism.fixed import fixed_boxes, rectangles
from glit.bench.lism_flism.job import XYXY, Job
from glit.bench.lism_flism.operations import YOLOS, sam_image, yolos_image
from glit.data.geometry import area_ratio_mask, grid_boxes
from glit.data.records import Sample

POINTS_PER_BATCH = 128
"""GOAL's; segment-anything's default is 64."""
_LARGE, _SHRUNK = (4000, 3000), (2048, 1536)


class Proposer(Protocol):
    """Finds candidates in one image and cuts them out."""

    model: Any

    def propose(self, image: Image.Image) -> list[Any]:
        """Masks or boxes."""
        ...

    def fixed(self, image: Image.Image, number: int) -> list[Any]:
        """Made-up candidates in the place of the proposed ones."""
        ...

    def crops(
        self, image: Image.Image, found: list[Any]
    ) -> Iterator[tuple[XYXY | None, Image.Image]]:
        """Every candidate that competes, as box and picture; None for the whole image."""
        ...

    def operations(self, sample: Sample) -> dict[str, float]:
        """Of each part of the proposer on an image of this size."""
        ...


class SamMasks:
    """LISM's candidates: masks, and the whole image."""

    def __init__(self, job: Job) -> None:
        from segment_anything import SamAutomaticMaskGenerator

        from glit.backends.sam.model import MaskThresholds, load_checkpoint, load_sam

        path = job.proposer.path
        if path.is_dir():
            sam, _, thresholds = load_sam(path)
        else:
            sam, thresholds = load_checkpoint(path), MaskThresholds()
        self._config: ProposerConfig = job.recipe.propose
        self._num_points = thresholds.points_per_side**2
        self.model: Any = sam.to(pick_device(job.device))
        self._generator = SamAutomaticMaskGenerator(
            self.model, points_per_batch=POINTS_PER_BATCH, **asdict(thresholds)
        )

    def propose(self, image: Image.Image) -> list[Any]:
        """See :class:`Proposer`."""
        shrunk = image
        if image.width > _LARGE[0] or image.height > _LARGE[1]:
            shrunk = image.copy()
            shrunk.thumbnail(_SHRUNK, Image.Resampling.LANCZOS)
        masks = [found["segmentation"] for found in self._generator.generate(np.array(shrunk))]
        if shrunk.size == image.size:
            return masks
        nearest = Image.Resampling.NEAREST
        return [np.array(Image.fromarray(mask).resize(image.size, nearest)) for mask in masks]

    def fixed(self, image: Image.Image, number: int) -> list[Any]:
        """See :class:`Proposer`."""
        return rectangles(image.width, image.height, fixed_boxes(*image.size, number))

    def crops(
        self, image: Image.Image, found: list[Any]
    ) -> Iterator[tuple[XYXY | None, Image.Image]]:
        """See :class:`Proposer`."""
        yield None, image
        whole = image.width * image.height
        for mask in found:
            if self._config.min_area <= mask.sum() / whole <= self._config.max_area:
                pixels, keep = np.array(image), mask[:, :, None].astype(np.uint8)
                blended = pixels * keep + (1 - keep) * np.array(image)
                rows, columns = np.where(mask)
                x0, x1 = int(columns.min()), int(columns.max()) + 1
                y0, y1 = int(rows.min()), int(rows.max()) + 1
                yield (x0, y0, x1, y1), Image.fromarray(blended[y0:y1, x0:x1])

    def operations(self, sample: Sample) -> dict[str, float]:
        """See :class:`Proposer`; the input is a square of one size whatever the image."""
        return sam_image(self.model, self._num_points)


class YolosBoxes:
    """FLISM's candidates: detected objects, four quadrants and a centre region."""

    def __init__(self, job: Job) -> None:
        from transformers import YolosForObjectDetection, YolosImageProcessor

        path = str(job.proposer.path)
        self._config: ProposerConfig = job.recipe.propose
        self._device = pick_device(job.device)
        self._processor: Any = YolosImageProcessor.from_pretrained(path, local_files_only=True)
        loaded: Any = YolosForObjectDetection.from_pretrained(path, local_files_only=True)
        self.model: Any = loaded.float().to(self._device).eval()

    def propose(self, image: Image.Image) -> list[Any]:
        """See :class:`Proposer`."""
        import torch

        inputs = self._processor(images=image, return_tensors="pt").to(self._device)
        with torch.no_grad():
            outputs = self.model(**inputs)
        found = self._processor.post_process_object_detection(
            outputs,
            threshold=self._config.score_threshold,
            target_sizes=[(image.height, image.width)],
        )[0]
        limits = [image.width, image.height] * 2
        return list(np.clip(found["boxes"].cpu().numpy(), 0, limits).astype(float))

    def fixed(self, image: Image.Image, number: int) -> list[Any]:
        """See :class:`Proposer`; the grid comes on top, as in glit."""
        return list(fixed_boxes(*image.size, number))

    def crops(
        self, image: Image.Image, found: list[Any]
    ) -> Iterator[tuple[XYXY | None, Image.Image]]:
        """See :class:`Proposer`."""
        boxes = np.array(found, dtype=np.float64).reshape(-1, 4)
        fits = area_ratio_mask(
            boxes,
            width=image.width,
            height=image.height,
            min_ratio=self._config.min_area,
            max_ratio=self._config.max_area,
        )
        grid = grid_boxes(width=image.width, height=image.height).values()
        for x0, y0, x1, y1 in [*boxes[fits].tolist(), *grid]:
            yield (x0, y0, x1, y1), image.crop((x0, y0, x1, y1))

    def operations(self, sample: Sample) -> dict[str, float]:
        """See :class:`Proposer`."""
        blank = Image.new("RGB", (sample.width, sample.height))
        height, width = self._processor(images=blank, return_tensors="pt")["pixel_values"].shape[2:]
        return {YOLOS: yolos_image(self.model.config, int(height), int(width))}
