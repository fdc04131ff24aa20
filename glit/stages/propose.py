"""Propose: candidate regions per image, filtered, without near-duplicates, the grid kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from glit.data import rows
from glit.data.geometry import area_ratio_mask, suppress_duplicates
from glit.data.records import Drop, Region, Sample
from glit.data.schema import ABOUT_MASKS, MASKS, REGION
from glit.inputs.lookup import UserTable
from glit.models.backends.base import Backend
from glit.models.backends.proposers import PROPOSERS
from glit.models.backends.proposers.grid import Grid
from glit.models.backends.protocols import Detector, ProposerConfig, RegionLayout, RegionReader
from glit.plain import limited
from glit.recipes.config import Choice, require_value
from glit.stages.base import Outcome, Stage, isolate
from glit.stages.image_source import ImageSource, loaded_batches, read_files
from glit.stages.plan import Plan

_AND_GRID = "+grid"
_GROUP = 4  # detector batches looked at together, so that images of one shape can meet


def _backends() -> dict[str, Backend]:
    """Every proposer, and every one that finds something together with the grid."""
    both = {f"{name}{_AND_GRID}": b for name, b in PROPOSERS.items() if b.reads != "nothing"}
    return PROPOSERS | both


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposeConfig(ProposerConfig):
    """The regions that compete for a sentence."""

    enabled: bool = True
    """True gives images regions; false also turns ``score`` and ``pair`` off: a dataset of captions
    alone, with empty ``regions`` and ``pairs`` and no matcher."""
    backend: str = "yolos+grid"
    """``yolos+grid`` is FLISM's proposer and ``sam`` is LISM's; ``yolo`` runs an ultralytics file;
    ``sa1b`` reads LISM's masks from NAME.json beside the image, as SA-1B ships them; ``file``
    reads your own boxes there and ``provided`` those of --regions FILE (docs/regions.md);
    ``grid`` is four quadrants and a centre; ``+grid`` adds it to any proposer."""
    max_iou: float = limited(0.9, least=0, most=1)
    """If two detections overlap with a higher IoU than this, glit keeps the one with the better
    score."""
    options: Any = None
    """Keys of the backend's own."""
    choice: ClassVar[Choice] = Choice(
        key="backend", options=lambda: {name: each.options for name, each in _backends().items()}
    )

    def check(self) -> None:
        ProposerConfig.check(self)
        backend = _backends().get(self.backend)
        require_value(
            not self.keep_masks or backend is None or backend.keeps_masks,
            f"[propose] keep_masks: backend = {self.backend!r} has no masks; take sam, sa1b, file, "
            "or leave it out",
        )


class ProposeStage(Stage):
    """Regions of every image: the proposer's, then the grid's (FAST-GOAL, section III-A)."""

    name = "propose"
    version = 3
    reads = ("image",)
    makes = ("regions",)
    retryable = True
    title, role = "Regions", "proposer"
    about = ABOUT_MASKS
    config = ProposeConfig
    columns = (("regions", pa.list_(REGION)),)
    as_rows = (rows.region_row, rows.region)

    def __init__(self, config: ProposeConfig) -> None:
        self._config = config
        self._measures_area = self.backend(config).measures_area
        self._grid: RegionLayout | None = Grid() if config.backend.endswith(_AND_GRID) else None

    @classmethod
    def chosen(cls, config: ProposeConfig) -> type[ProposeStage]:
        return KeepMasks if config.keep_masks else cls

    @classmethod
    def row(cls, sample: Sample) -> dict[str, Any]:
        regions = sample.regions or ()
        masks = [{"region": i, "counts": r.mask} for i, r in enumerate(regions) if r.mask]
        return {"regions": [rows.region_row(region) for region in regions], "masks": masks}

    @classmethod
    def backend(cls, config: ProposeConfig) -> Backend:
        return _backends()[config.backend]

    @classmethod
    def open(cls, plan: Plan) -> ProposeStage:
        config = plan.config(ProposeConfig)
        backend = cls.backend(config)
        made = backend.make(config, plan.models.get("proposer"))
        if backend.reads == "file":
            return ReadRegions(config, made, plan.regions)
        return (DetectRegions if backend.reads == "pixels" else LayRegions)(config, made)

    def finished(self, sample: Sample, found: list[Region]) -> Outcome:
        """The sample with those of its regions that pass the filters; a drop when none does."""
        size = {"width": sample.width, "height": sample.height}
        grid = self._grid.regions(**size) if self._grid else []
        good = found if self._measures_area else of_good_size(found, config=self._config, **size)
        kept = select(good, grid, config=self._config)
        if not kept:
            return Drop(
                reason="no_region",
                message=f"none of {len(found)} regions passed the filters of [propose]"
                if found
                else "nothing was detected",
            )
        return dataclasses.replace(sample, regions=tuple(kept))


class KeepMasks(ProposeStage):
    """With a column ``masks``, where they are kept."""

    dataset_columns = (MASKS,)
    columns = (*ProposeStage.columns, *dataset_columns)
    as_rows = None

    @classmethod
    def with_row(cls, sample: Sample, row: Mapping[str, Any]) -> Sample:
        regions = tuple(rows.region(each) for each in row["regions"])
        extra = {**sample.extra, "masks": row["masks"]}
        return dataclasses.replace(sample, regions=regions, extra=extra)


class DetectRegions(ProposeStage):
    """Regions from a detector that is given pixels."""

    def __init__(self, config: ProposeConfig, detector: Detector) -> None:
        super().__init__(config)
        self._detector = detector

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        alone = self.backend(self._config).is_slow(self._config)
        size = 1 if alone else self._config.batch_size * _GROUP
        for group in loaded_batches(samples, images, size):
            good = [image for _, image in group if not isinstance(image, Drop)]
            found = iter(isolate(good, self._detector.detect))
            for sample, image in group:
                result = image if isinstance(image, Drop) else next(found)
                yield result if isinstance(result, Drop) else self.finished(sample, result)


class ReadRegions(ProposeStage):
    """Regions from files beside the images or from the user's; no image is decoded."""

    def __init__(
        self, config: ProposeConfig, reader: RegionReader, table: UserTable | None
    ) -> None:
        super().__init__(config)
        self._reader, self._table = reader, table

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        backend = self.backend(self._config)
        read = read_files(samples, images, backend, self._table, self._reader.read)
        for sample, found in zip(samples, read, strict=True):
            yield found if isinstance(found, Drop) else self.finished(sample, found)


class LayRegions(ProposeStage):
    """Regions that depend on the image's size alone; no image is decoded."""

    def __init__(self, config: ProposeConfig, layout: RegionLayout) -> None:
        super().__init__(config)
        self._grid = layout

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        return (self.finished(sample, []) for sample in samples)


def of_good_size(
    regions: Sequence[Region], *, width: int, height: int, config: ProposerConfig
) -> list[Region]:
    """Regions whose box is inside the area limits, for an image of so many pixels."""
    boxes = np.array([r.box.xyxy for r in regions], dtype=np.float64).reshape(-1, 4)
    good = area_ratio_mask(
        boxes, width=width, height=height, min_ratio=config.min_area, max_ratio=config.max_area
    )
    return [region for region, keep in zip(regions, good, strict=True) if keep]


def select(
    found: Sequence[Region], grid: Sequence[Region], *, config: ProposeConfig
) -> list[Region]:
    """Regions that stay, best first, then the whole grid.

    Of near-duplicates the best scored stays; a detection that repeats a grid cell goes. Of more
    than ``max_regions`` the worst detections go, never the grid.
    """
    everything = [*grid, *found]
    if not everything:
        return []
    boxes = np.array([region.box.xyxy for region in everything], dtype=np.float64)
    scores = np.array([region.score for region in everything], dtype=np.float64)
    scores[: len(grid)] = np.inf  # the grid is never the one to give way
    kept = suppress_duplicates(boxes, scores, max_iou=config.max_iou)
    chosen = [everything[index] for index in kept if index >= len(grid)]
    return [*chosen[: config.max_regions - len(grid)], *grid]
