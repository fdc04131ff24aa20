"""Propose: candidate regions per image, filtered, without near-duplicates, the grid kept."""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from glit.backends.protocols import Detector, RegionReader
from glit.config import ProposeConfig
from glit.geometry import area_ratio_mask, grid_boxes, suppress_duplicates
from glit.records import Box, Drop, Region, Sample
from glit.stages.base import ImageSource, Outcome, batched, isolate

VERSION = 3
_GROUP = 4  # detector batches looked at together, so that images of one shape can meet


class ProposeStage:
    """Regions of every image: the detector's, then the grid's (FAST-GOAL, section III-A)."""

    name: ClassVar[str] = "propose"

    def __init__(self, config: ProposeConfig, detector: Detector | None) -> None:
        self._config = config
        self._detector = detector

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        if self._detector is None:
            yield from (finish(sample, [], self._config) for sample in samples)
            return
        loaded = zip(samples, images.each(samples), strict=True)
        for group in batched(loaded, self._config.batch_size * _GROUP):
            good = [image for _, image in group if not isinstance(image, Drop)]
            found = iter(isolate(good, self._detector.detect) if good else [])
            for sample, image in group:
                result = image if isinstance(image, Drop) else next(found)
                failed = isinstance(result, Drop)
                yield result if failed else finish(sample, result, self._config)


class ShippedRegionsStage:
    """Regions that lie beside the images in files; no pixel is looked at."""

    name: ClassVar[str] = "propose"

    def __init__(self, config: ProposeConfig, reader: RegionReader) -> None:
        self._config = config
        self._reader = reader

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        for sample in samples:
            found = self._read(sample, images)
            yield found if isinstance(found, Drop) else finish(sample, found, self._config)

    def _read(self, sample: Sample, images: ImageSource) -> list[Region] | Drop:
        beside = posixpath.splitext(sample.source_path)[0] + self._reader.suffix
        try:
            text = images.text(beside)
        except (OSError, UnicodeDecodeError) as error:
            return Drop(reason="no_masks", message=f"{beside} cannot be read: {error}")
        if text is None:
            return Drop(reason="no_masks", message=f"there is no {posixpath.basename(beside)}")
        try:
            return self._reader.read(text, width=sample.width, height=sample.height)
        except ValueError as error:
            return Drop(reason="bad_masks", message=f"{beside}: {error}")


def finish(sample: Sample, detections: list[Region], config: ProposeConfig) -> Outcome:
    """The sample with those of its regions that pass the filters; a drop when none does."""
    grid = grid_regions(sample.width, sample.height) if "grid" in config.backend.split("+") else []
    kept = select(detections, grid, width=sample.width, height=sample.height, config=config)
    if not kept:
        return Drop(
            reason="no_region",
            message=f"none of {len(detections)} regions passed the filters of [propose]"
            if detections
            else "nothing was detected",
        )
    return dataclasses.replace(sample, regions=tuple(kept))


def grid_regions(width: int, height: int) -> list[Region]:
    """The five grid regions of an image."""
    return [
        Region(
            box=Box(x0=x0, y0=y0, x1=x1, y1=y1),
            score=1.0,
            label=name,
            source="centre" if name == "centre" else "quadrant",
        )
        for name, (x0, y0, x1, y1) in grid_boxes(width=width, height=height).items()
    ]


def select(
    detections: Sequence[Region],
    grid: Sequence[Region],
    *,
    width: int,
    height: int,
    config: ProposeConfig,
) -> list[Region]:
    """Detections that pass the filters, best first, then the whole grid.

    Detections outside the area limits go; of near-duplicates the best scored stays, and one
    that repeats a grid cell gives way to it; the cap takes the worst detections, never the grid.
    """
    everything = [*grid, *_of_good_size(detections, width=width, height=height, config=config)]
    if not everything:
        return []
    boxes = np.array([region.box.xyxy for region in everything], dtype=np.float64)
    scores = np.array([region.score for region in everything])
    scores[: len(grid)] = np.inf  # the grid is never the one to give way
    kept = suppress_duplicates(boxes, scores, max_iou=config.max_iou)
    chosen = [everything[index] for index in kept if index >= len(grid)]
    return [*chosen[: config.max_regions - len(grid)], *grid]


def _of_good_size(
    detections: Sequence[Region], *, width: int, height: int, config: ProposeConfig
) -> list[Region]:
    """Detections inside the area limits; SAM's were measured as masks already."""
    boxes = np.array([r.box.xyxy for r in detections], dtype=np.float64).reshape(-1, 4)
    good = area_ratio_mask(
        boxes, width=width, height=height, min_ratio=config.min_area, max_ratio=config.max_area
    )
    return [r for r, keep in zip(detections, good, strict=True) if keep or r.source == "sam"]
