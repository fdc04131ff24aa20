"""From passes to figures (medians with their spread, ratios, parameters, floors, projection), and
from figures to a page.

A report is what ``lism-flism.json`` holds; page, terminal and picture show its figures.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from glit.bench.harness import Row
from glit.bench.lism_flism.columns import COLUMNS, CROP, PARTS, XYXY, Column, Method, total_s
from glit.bench.lism_flism.inputs import Truth
from glit.bench.tables import Page, Table, figure, spread, with_range
from glit.data.geometry import iou
from glit.data.records import Sample

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

RIGHT_IOU = 0.5
"""A sentence about an object is *right* when the region chosen for it overlaps the object's box
with this IoU or more. LISM gives no region where the whole image matches best; such a sentence is
not right, and counts as a global win."""

_DAYS_FROM_MIN = 2 * 1440
_STRONG = ("total", "images a second")
TITLES = {column.key: column.title for column in COLUMNS}


def column_figures(
    column: Column,
    passes: Sequence[Row],
    *,
    facts: Mapping[str, Row],
    watched: Row | None,
    threads: int,
) -> Row:
    """A column's figures; seconds are seconds an image.

    Args:
        column: which.
        passes: the counted ones.
        facts: of all columns.
        watched: a pass that recorded the GPU's kernels; None on a CPU.
        threads: cores the column could use.
    """
    last = passes[-1]
    number = last["num_images"]
    regions = last["num_regions"] / number
    crops = regions + (column.method == "lism" or column.in_glit)  # glit scores the whole image
    total = [total_s(each) / number for each in passes]
    return {
        "title": column.title,
        "parts_s": {part: spread([p["parts_s"][part] / number for p in passes]) for part in PARTS},
        "decode_s": spread([each["decode_s"] / number for each in passes]),
        "total_s": spread(total),
        "images_per_s": spread([1 / seconds for seconds in total]),
        "regions_per_image": regions,
        "crops_per_image": crops,
        "proposed_per_image": last["num_proposed"] / number,
        "num_dropped": last["num_dropped"],
        "peak_host_mb": last["peak_host_mb"],
        "peak_device_mb": last["peak_device_mb"],
        "busy_share": _busy_share(passes, watched, threads),
        "floor": _floor(column, crops, facts) if column.in_glit else None,
    }


def _busy_share(passes: Sequence[Row], watched: Row | None, threads: int) -> float | None:
    if watched is None:
        shares = [each["cpu_s"] / (total_s(each) * threads) for each in passes]
        return min(1.0, statistics.median(shares))
    if not watched["device_s"]:
        return None
    total = statistics.median(total_s(each) / each["num_images"] for each in passes)
    return min(1.0, watched["device_s"] / watched["num_images"] / total)


def _floor(column: Column, crops: float, facts: Mapping[str, Row]) -> Row:
    """Seconds an image that the counted operations take at the measured matrix rates."""
    counted, rates = facts[f"{column.method}-one"]["operations"], facts[column.key]["rates"]
    operations = {part: each * (crops if part == CROP else 1) for part, each in counted.items()}
    seconds = {part: each / rates[part]["operations_per_s"] for part, each in operations.items()}
    return {
        "propose_s": sum(each for part, each in seconds.items() if part != CROP),
        "encode_s": seconds[CROP],
        "operations": operations,
        "rates": rates,
    }


def better_rates(first: Row, second: Row) -> Row:
    """A column's facts with the better of two measurements of each rate."""
    rates = {
        part: max(rate, second["rates"][part], key=lambda each: each["operations_per_s"])
        for part, rate in first["rates"].items()
    }
    return first | {"rates": rates}


def ratios(passes: Mapping[str, Sequence[Row]]) -> list[Row]:
    """How many times faster, over the repeats: those of one round are compared with each other."""
    return [
        {
            "fast": fast,
            "slow": slow,
            "times": spread(
                [
                    total_s(theirs) / total_s(ours)
                    for ours, theirs in zip(passes[fast], passes[slow], strict=True)
                ]
            ),
            "paper": paper,
        }
        for fast, slow, paper in RATIOS
    ]


def parameters(proposer: int, clip: int) -> Row:
    """Parameters of a method's models and their sums: as the papers count, CLIP once as image and
    once as text encoder (Table X); and what is in memory, CLIP counted once."""
    sums = {"table_x": proposer + 2 * clip, "once": proposer + clip}
    return {"proposer": proposer, "clip": clip, **sums}


def project(seconds: Mapping[str, float]) -> list[Row]:
    """Minutes that the papers' data sets would take at these seconds an image, by column, beside
    the minutes on the papers' machine."""
    return [
        {
            "name": name,
            "num_images": number,
            "minutes": {key: number * each / 60 for key, each in seconds.items()},
            "paper_minutes": paper,
        }
        for name, number, paper in DATASETS
    ]


def judge(
    samples: Sequence[Sample],
    choices: Sequence[Sequence[XYXY | None]],
    truth: Sequence[Truth],
) -> Row:
    """Compare chosen regions with the truth; shares of sentences.

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
        objects += len(true)
        for start, wanted in true.items():
            box = chosen.get(start)
            if box is not None:
                pair = np.array([box], dtype=float), np.array([wanted], dtype=float)
                overlaps.append(float(iou(*pair)[0, 0]))
    return {
        "num_object_sentences": objects,
        "right": sum(overlap >= RIGHT_IOU for overlap in overlaps) / max(1, objects),
        "mean_iou": float(np.mean(overlaps)) if overlaps else 0.0,
        "global_wins": wins / max(1, total),
        "global_wins_object": (objects - len(overlaps)) / max(1, objects),
    }


def duration(minutes: float, *, in_days: bool) -> str:
    """Minutes or days.

    >>> duration(97.63, in_days=False), duration(1239.7, in_days=False)
    ('97.6 min', '1,240 min')
    >>> duration(82080, in_days=True)
    '57.0 days'
    """
    return f"{figure(minutes / 1440)} days" if in_days else f"{figure(minutes)} min"


def _memory(megabytes: float | None) -> str:
    return "–" if megabytes is None else f"{megabytes / 1024:.2f} GiB"


def _floor_cell(column: Row, which: str) -> str:
    return "" if column["floor"] is None else figure(column["floor"][which])


_CELLS: Mapping[str, Callable[[Row], str]] = {
    "decode": lambda c: with_range(c["decode_s"]),
    "· waiting for it": lambda c: with_range(c["parts_s"]["wait"]),
    "propose": lambda c: with_range(c["parts_s"]["propose"]),
    "· its floor": lambda c: _floor_cell(c, "propose_s"),
    "crop + encode": lambda c: with_range(c["parts_s"]["encode"]),
    "· its floor ": lambda c: _floor_cell(c, "encode_s"),
    "match": lambda c: with_range(c["parts_s"]["match"]),
    "write": lambda c: with_range(c["parts_s"]["write"]),
    "total": lambda c: with_range(c["total_s"]),
    "images a second": lambda c: with_range(c["images_per_s"]),
    "regions an image": lambda c: figure(c["regions_per_image"]),
    "peak device memory": lambda c: _memory(c["peak_device_mb"]),
    "peak host memory": lambda c: _memory(c["peak_host_mb"]),
    "device busy": lambda c: "–" if c["busy_share"] is None else f"{100 * c['busy_share']:.0f} %",
}


def main_rows(report: Row) -> list[list[str]]:
    """Seconds an image by part, and what else every column has a figure of."""
    columns = list(report["columns"].values())
    rows = [[name.strip(), *(cell(each) for each in columns)] for name, cell in _CELLS.items()]
    if report["settings"]["num_fixed"] is not None:
        own = [figure(each["proposed_per_image"]) for each in columns]
        rows.append(["proposed before they were fixed", *own])
    return rows


def _ratio_rows(report: Row) -> list[list[str]]:
    return [
        [
            f"{TITLES[ratio['fast']]} against {TITLES[ratio['slow']]}",
            f"{with_range(ratio['times'])} ×",
            f"{ratio['paper']} ×" if ratio["paper"] else "",
        ]
        for ratio in report["ratios"]
    ]


def _parameter_rows(report: Row) -> list[list[str]]:
    named = {
        "image encoder: CLIP": "clip",
        "text encoder: CLIP": "clip",
        "proposer: SAM, YOLOS": "proposer",
        "as the papers count (Table X)": "table_x",
        "CLIP, which is one model, counted once": "once",
    }
    methods = [report["parameters"][method] for method in TABLE_X]
    rows = [[name, *(f"{m[key] / 1e6:.1f}" for m in methods)] for name, key in named.items()]
    if report["settings"]["weights"] != "mini":
        rows.append(["Table X as printed", *map(str, TABLE_X.values())])
    return rows


def _quality_rows(report: Row) -> list[list[str]]:
    named = {
        "object sentences with the right region": lambda q: f"{100 * q['right']:.1f} %",
        "mean IoU of the chosen region": lambda q: f"{q['mean_iou']:.3f}",
        "global wins, all sentences": lambda q: f"{100 * q['global_wins']:.1f} %",
        "global wins, object sentences": lambda q: f"{100 * q['global_wins_object']:.1f} %",
    }
    found = [report["quality"][key] for key in TITLES]
    return [[name, *map(cell, found)] for name, cell in named.items()]


def _projection_rows(report: Row) -> list[list[str]]:
    """What the papers' data sets would take, beside what they took; a row has one unit."""
    rows = []
    for each in report["projections"]:
        papers = each["paper_minutes"]
        in_days = papers["lism"] >= _DAYS_FROM_MIN
        minutes = [*(each["minutes"][key] for key in TITLES), *map(papers.get, TABLE_X)]
        cells = ["–" if m is None else duration(m, in_days=in_days) for m in minutes]
        rows.append([each["name"], *cells])
    return rows


def headline(report: Row) -> str:
    """What was measured on what, in one line."""
    settings, machine = report["settings"], report["machine"]
    where = machine.get("gpu") or f"{machine['cpu']}, {machine['cores']} cores"
    return f"{settings['images']}; {settings['weights']} weights; {where}"


def page(report: Row) -> Page:
    """The whole report."""
    settings, titles = report["settings"], list(TITLES.values())
    number = settings["warm_up_images"]
    warm = "1 image" if number == 1 else f"{number} images"
    blocks: list[str | Table] = [
        "# LISM against FLISM",
        f"{headline(report)}. Medians of {settings['repeats']} (min–max), the columns in turn, "
        f"after a warm-up on {warm} that is not counted.",
        Table(heads=["seconds an image", *titles], rows=main_rows(report), strong=_STRONG),
        "Floors: operations counted by torch, over the rate of a large matrix product measured in "
        "the same process, in billions:",
        "\n".join(_floor_lines(report)),
        "## How many times faster",
        Table(heads=["", "here", "papers, their machine"], rows=_ratio_rows(report)),
        "## Parameters, millions",
        Table(heads=["", "LISM", "FLISM"], rows=_parameter_rows(report)),
    ]
    if report["quality"] is not None:
        blocks.append(f"## Quality, on {report['num_quality']} scenes whose truth is known")
        blocks.append(Table(heads=["", *titles], rows=_quality_rows(report)))
    heads = ["projection", *titles, "papers: LISM", "papers: FLISM"]
    return [
        *blocks,
        "## Projection",
        "**Not measured**: the median seconds an image above times the number of images. The "
        "papers' figures are of other hardware and other images.",
        Table(heads=heads, rows=_projection_rows(report)),
        "## Notes",
        "\n".join(f"- {note}" for note in (*report["notes"], *_drop_notes(report))),
        "## Machine",
        "; ".join(f"{key}: {value}" for key, value in report["machine"].items()) + ".",
        "; ".join(f"{key} {value}" for key, value in report["versions"].items()) + ".",
    ]


def _floor_lines(report: Row) -> Iterator[str]:
    """What the floors are made of."""
    for column in report["columns"].values():
        floor: Any = column["floor"]
        if floor is None:
            continue
        crops, rates = f"CLIP, {figure(column['crops_per_image'])} crops", floor["rates"]
        parts = [
            f"{part.replace(CROP, crops)} {figure(operations / 1e9)}, {rates[part]['precision']} "
            f"at {figure(rates[part]['operations_per_s'] / 1e9)} a second"
            for part, operations in floor["operations"].items()
        ]
        yield f"- {column['title']}: {'; '.join(parts)}."


def _drop_notes(report: Row) -> Iterator[str]:
    for column in report["columns"].values():
        if column["num_dropped"]:
            yield f"{column['title']}: {column['num_dropped']} images got no region at all."
