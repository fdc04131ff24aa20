"""From passes to figures (medians with their spread, ratios, parameters, floors, projection), and
from figures to a page.

A report is what ``lism-flism.json`` holds; page, terminal and picture show its figures.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from glit.bench.harness import Row
from glit.bench.lism_flism.columns import COLUMNS, CROP, PARTS, Column, Method, total_s
from glit.bench.tables import Page, Table, figure, spread, with_range

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
_DAYS_FROM_MIN = 2 * 1440
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
    if watched is None:
        busy = statistics.median(each["cpu_s"] / (total_s(each) * threads) for each in passes)
    else:
        busy = (watched["device_s"] or 0) / watched["num_images"] / statistics.median(total)
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
        "busy_share": min(1.0, busy) if busy else None,
        "floor": _floor(column, crops, facts) if column.in_glit else None,
    }


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
    found = []
    for fast, slow, paper in RATIOS:
        rounds = zip(passes[fast], passes[slow], strict=True)
        times = spread([total_s(theirs) / total_s(ours) for ours, theirs in rounds])
        found.append({"fast": fast, "slow": slow, "times": times, "paper": paper})
    return found


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
_FIXED: Mapping[str, Callable[[Row], str]] = {
    "proposed before they were fixed": lambda c: figure(c["proposed_per_image"]),
}
_QUALITY: Mapping[str, Callable[[Row], str]] = {
    "object sentences with the right region": lambda q: f"{100 * q['right']:.1f} %",
    "mean IoU of the chosen region": lambda q: f"{q['mean_iou']:.3f}",
    "global wins, all sentences": lambda q: f"{100 * q['global_wins']:.1f} %",
    "global wins, object sentences": lambda q: f"{100 * q['global_wins_object']:.1f} %",
}
_PARAMETERS: Mapping[str, Callable[[Row], str]] = {
    "image encoder: CLIP": lambda m: f"{m['clip'] / 1e6:.1f}",
    "text encoder: CLIP": lambda m: f"{m['clip'] / 1e6:.1f}",
    "proposer: SAM, YOLOS": lambda m: f"{m['proposer'] / 1e6:.1f}",
    "as the papers count (Table X)": lambda m: f"{m['table_x'] / 1e6:.1f}",
    "CLIP, which is one model, counted once": lambda m: f"{m['once'] / 1e6:.1f}",
}


def _rows(cells: Mapping[str, Callable[[Row], str]], columns: Sequence[Row]) -> list[list[str]]:
    return [[name.strip(), *map(cell, columns)] for name, cell in cells.items()]


def main_rows(report: Row) -> list[list[str]]:
    """The table: a row for each part's seconds an image and each other figure, by column."""
    fixed = _FIXED if report["settings"]["num_fixed"] is not None else {}
    return _rows({**_CELLS, **fixed}, list(report["columns"].values()))


def _ratio_row(ratio: Row) -> list[str]:
    name = f"{TITLES[ratio['fast']]} against {TITLES[ratio['slow']]}"
    paper = f"{ratio['paper']} ×" if ratio["paper"] else ""
    return [name, f"{with_range(ratio['times'])} ×", paper]


def _projection_row(each: Row) -> list[str]:
    """What a data set of the papers would take, beside what it took; a row has one unit."""
    papers = each["paper_minutes"]
    size, unit = (1440, "days") if papers["lism"] >= _DAYS_FROM_MIN else (1, "min")
    minutes = [*(each["minutes"][key] for key in TITLES), *map(papers.get, TABLE_X)]
    return [each["name"], *("–" if m is None else f"{figure(m / size)} {unit}" for m in minutes)]


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
    counted = _rows(_PARAMETERS, [report["parameters"][method] for method in TABLE_X])
    if settings["weights"] != "mini":
        counted.append(["Table X as printed", *map(str, TABLE_X.values())])
    blocks: list[str | Table] = [
        "# LISM against FLISM",
        f"{headline(report)}. Medians of {settings['repeats']} (min–max), the columns in turn, "
        f"after a warm-up on {warm} that is not counted.",
        Table(
            heads=["seconds an image", *titles],
            rows=main_rows(report),
            strong=("total", "images a second"),
        ),
        "Floors: operations counted by torch, over the rate of a large matrix product measured in "
        "the same process, in billions:",
        "\n".join(_floor_lines(report)),
        "## How many times faster",
        Table(
            heads=["", "here", "papers, their machine"],
            rows=list(map(_ratio_row, report["ratios"])),
        ),
        "## Parameters, millions",
        Table(heads=["", "LISM", "FLISM"], rows=counted),
    ]
    if report["quality"] is not None:
        blocks.append(f"## Quality, on {report['num_quality']} scenes whose truth is known")
        found = _rows(_QUALITY, [report["quality"][key] for key in TITLES])
        blocks.append(Table(heads=["", *titles], rows=found))
    heads = ["projection", *titles, "papers: LISM", "papers: FLISM"]
    dropped = [
        f"{column['title']}: {column['num_dropped']} images got no region at all."
        for column in report["columns"].values()
        if column["num_dropped"]
    ]
    return [
        *blocks,
        "## Projection",
        "**Not measured**: the median seconds an image above times the number of images. The "
        "papers' figures are of other hardware and other images.",
        Table(heads=heads, rows=list(map(_projection_row, report["projections"]))),
        "## Notes",
        "\n".join(f"- {note}" for note in (*report["notes"], *dropped)),
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
