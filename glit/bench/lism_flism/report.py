"""From passes to figures: medians with their spread, ratios, parameters, floors, projection.

:meth:`Report.as_dict` is what ``lism-flism.json`` holds; Markdown, terminal and picture show the
same figures.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from glit.bench.lism_flism.inputs import Truth
from glit.bench.lism_flism.job import COLUMNS, CROP, PARTS, XYXY, Column, Facts, Method, Pass, Rate
from glit.bench.tables import Spread, spread
from glit.data.geometry import iou
from glit.data.records import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Parameters of a method's models."""

    proposer: int
    clip: int
    """Both encoders and their projections: one model."""

    @property
    def table_x(self) -> int:
        """The papers' sum: CLIP counted once as image and once as text encoder (Table X)."""
        return self.proposer + 2 * self.clip

    @property
    def once(self) -> int:
        """What is in memory: CLIP counted once."""
        return self.proposer + self.clip


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """Seconds an image that the counted operations take at the measured matrix rates."""

    propose_s: float
    encode_s: float
    operations: dict[str, float]
    """An image of each part of the models; of CLIP's image encoder on all crops."""
    rates: dict[str, Rate]
    """Of the same parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnReport:
    """A column's figures; seconds are seconds an image."""

    column: Column
    parts_s: dict[str, Spread]
    """By :data:`glit.bench.lism_flism.job.PARTS`."""
    decode_s: Spread
    """Decoders at work; in glit they work in threads and overlap with the rest."""
    total_s: Spread
    images_per_s: Spread
    regions_per_image: float
    crops_per_image: float
    """Regions, and for LISM the whole image; glit always scores it."""
    proposed_per_image: float
    """What the proposer itself gave, before filters or fixed regions."""
    num_dropped: int
    peak_host_mb: float
    peak_device_mb: float | None
    busy_share: float | None
    """Of the device; see :attr:`Report.notes` for how it is measured."""
    floor: Floor | None
    """For glit's columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How many times faster one column is than another, repeat by repeat."""

    fast: str
    slow: str
    times: Spread
    paper: float | None
    """The papers' figure on their machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """Minutes that a data set would take at the measured speed, beside the papers' minutes."""

    name: str
    num_images: int
    minutes: dict[str, float]
    """By column."""
    paper_minutes: dict[Method, float]
    """On the papers' machine; only what they give."""


RATIOS: tuple[tuple[str, str, float | None], ...] = (
    ("flism-one", "lism-one", 12.7),
    ("flism-glit", "lism-one", 12.7),
    ("lism-glit", "lism-one", None),
    ("flism-glit", "flism-one", None),
)
"""Faster column, slower column, the papers' figure (FAST-GOAL, Table IX: their FLISM against
GOAL's LISM; of glit's FLISM at least as much is asked)."""

TABLE_X: dict[Method, float] = {"lism": 940.3, "flism": 426.9}
"""Millions of parameters as FAST-GOAL's Table X prints them. Its parts of FLISM, 149.6 twice and
127.8, add up to 427.0."""

DATASETS: tuple[tuple[str, int, dict[Method, float]], ...] = (
    ("DOCCI, 9,647 training images", 9_647, {"lism": 1239.7, "flism": 97.63}),
    ("DCI, 5,805 training images", 5_805, {"lism": 407.71, "flism": 34.44}),
    ("100,000 images", 100_000, {"lism": 57 * 1440.0}),
)
"""Minutes of preprocessing in FAST-GOAL (Tables V and IX, and its 57 days for 100,000 images with
LISM); the numbers of training images are GOAL's (section 4.1; DCI: 7,805 less 2,000 for tests)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What was measured."""

    weights: str
    images: str
    num_images: int
    repeats: int
    warm_up_images: int
    device: str
    threads: int
    num_fixed: int | None
    """Regions an image fixed to this number; None where the proposers' own count."""


RIGHT_IOU = 0.5
"""A sentence about an object is *right* when the region chosen for it overlaps the object's box
with this IoU or more. LISM gives no region where the whole image matches best; such a sentence is
not right, and counts as a global win."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Choices of one column over all scenes."""

    num_object_sentences: int
    right: float
    """Share of the sentences about an object whose chosen region is the right one."""
    mean_iou: float
    """Of the chosen region with the true box, over the object sentences that got a region."""
    global_wins: float
    """Share of all sentences that the whole image wins."""
    global_wins_object: float
    """The same among the sentences about an object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything the benchmark found."""

    settings: Settings
    machine: dict[str, str]
    versions: dict[str, str]
    columns: tuple[ColumnReport, ...]
    ratios: tuple[Ratio, ...]
    parameters: dict[Method, Parameters]
    projections: tuple[Projection, ...]
    quality: dict[str, Quality] | None
    """By column; on scenes with the mini models."""
    num_quality: int
    """Scenes the quality was measured on."""
    notes: tuple[str, ...]

    def column(self, key: str) -> ColumnReport:
        return next(each for each in self.columns if each.column.key == key)

    def ratio(self, fast: str, slow: str) -> Ratio:
        return next(each for each in self.ratios if (each.fast, each.slow) == (fast, slow))

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, with the sums that are properties here."""
        values = asdict(self)
        values["columns"] = {each.column.key: _column_dict(each) for each in self.columns}
        values["parameters"] = {
            method: {**asdict(each), "table_x": each.table_x, "once": each.once}
            for method, each in self.parameters.items()
        }
        return {"benchmark": "lism-flism", **values}


def _column_dict(each: ColumnReport) -> dict[str, Any]:
    values = asdict(each)
    values["title"] = values.pop("column")["title"]
    return values


def column_report(
    column: Column,
    passes: Sequence[Pass],
    *,
    facts: Mapping[str, Facts],
    watched: Pass | None,
    threads: int,
) -> ColumnReport:
    """A column's figures.

    Args:
        column: which.
        passes: the counted ones.
        facts: of all columns.
        watched: a pass that recorded the GPU's kernels; None on a CPU.
        threads: cores the column could use.
    """
    number = passes[0].num_images
    last = passes[-1]
    regions = last.result.num_regions / number
    crops = regions + (column.method == "lism" or column.in_glit)
    total = [each.result.total_s / number for each in passes]
    return ColumnReport(
        column=column,
        parts_s={
            part: spread([each.result.parts_s[part] / number for each in passes]) for part in PARTS
        },
        decode_s=spread([each.result.decode_s / number for each in passes]),
        total_s=spread(total),
        images_per_s=spread([1 / seconds for seconds in total]),
        regions_per_image=regions,
        crops_per_image=crops,
        proposed_per_image=last.result.num_proposed / number,
        num_dropped=last.result.num_dropped,
        peak_host_mb=last.peak_host_mb,
        peak_device_mb=last.peak_device_mb,
        busy_share=_busy_share(passes, watched, threads),
        floor=_floor(column, crops, facts) if column.in_glit else None,
    )


def _busy_share(passes: Sequence[Pass], watched: Pass | None, threads: int) -> float | None:
    if watched is None:
        shares = [each.cpu_s / (each.result.total_s * threads) for each in passes]
        return min(1.0, statistics.median(shares))
    if not watched.device_s:
        return None
    total = statistics.median(each.result.total_s / each.num_images for each in passes)
    return min(1.0, watched.device_s / watched.num_images / total)


def _floor(column: Column, crops: float, facts: Mapping[str, Facts]) -> Floor:
    counted = facts[f"{column.method}-one"].operations
    rates = facts[column.key].rates
    operations = {part: each * (crops if part == CROP else 1) for part, each in counted.items()}
    seconds = {part: each / rates[part].operations_per_s for part, each in operations.items()}
    return Floor(
        propose_s=sum(each for part, each in seconds.items() if part != CROP),
        encode_s=seconds[CROP],
        operations=operations,
        rates=rates,
    )


def ratios(passes: Mapping[str, Sequence[Pass]]) -> tuple[Ratio, ...]:
    """How many times faster, over the repeats: those of one round are compared with each other."""
    return tuple(
        Ratio(
            fast=fast,
            slow=slow,
            times=spread(
                [
                    theirs.result.total_s / ours.result.total_s
                    for ours, theirs in zip(passes[fast], passes[slow], strict=True)
                ]
            ),
            paper=paper,
        )
        for fast, slow, paper in RATIOS
    )


def parameters(facts: Mapping[str, Facts]) -> dict[Method, Parameters]:
    """Of both methods, as their one-at-a-time columns counted them."""
    return {
        column.method: Parameters(**facts[column.key].parameters)
        for column in COLUMNS
        if not column.in_glit
    }


def project(seconds: Mapping[str, float]) -> tuple[Projection, ...]:
    """What the papers' data sets would take.

    Args:
        seconds: an image, by column.
    """
    return tuple(
        Projection(
            name=name,
            num_images=number,
            minutes={key: number * each / 60 for key, each in seconds.items()},
            paper_minutes=paper,
        )
        for name, number, paper in DATASETS
    )


def judge(
    samples: Sequence[Sample],
    choices: Sequence[Sequence[XYXY | None]],
    truth: Sequence[Truth],
) -> Quality:
    """Compare chosen regions with the truth.

    Args:
        samples: with sentences.
        choices: for each sample the chosen box of each sentence; None where there is none.
        truth: for each sample what its sentences tell of.
    """
    overlaps: list[float] = []
    objects = wins = total = 0
    for sample, boxes, true in zip(samples, choices, truth, strict=True):
        starts = [sentence.char_start for sentence in sample.sentences or ()]
        chosen = dict(zip(starts, boxes, strict=True))
        total += len(boxes)
        wins += sum(box is None for box in boxes)
        objects += len(true.boxes)
        for start, wanted in true.boxes.items():
            box = chosen.get(start)
            if box is not None:
                overlaps.append(
                    float(iou(np.array([box], dtype=float), np.array([wanted], dtype=float))[0, 0])
                )
    return Quality(
        num_object_sentences=objects,
        right=sum(overlap >= RIGHT_IOU for overlap in overlaps) / max(1, objects),
        mean_iou=float(np.mean(overlaps)) if overlaps else 0.0,
        global_wins=wins / max(1, total),
        global_wins_object=(objects - len(overlaps)) / max(1, objects),
    )
