"""From passes to figures (medians with their spread, ratios, quality), and from figures to a page.

A report is what ``lism-flism.json`` holds; page, terminal and picture show its figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from glit.bench.harness import Row
from glit.bench.lism_flism.columns import PARTS, Column, total_s
from glit.runtime.tables import Page, Table, figure, spread, with_range

RATIOS: tuple[tuple[str, str, float | None], ...] = (
    ("flism-one", "lism-one", 12.7),
    ("flism-glit", "lism-one", 12.7),
    ("lism-glit", "lism-one", None),
    ("flism-glit", "flism-one", None),
    ("flism-int8", "lism-one", None),
    ("flism-int8", "flism-one", None),
)
"""Faster column, slower column, the papers' figure (FAST-GOAL, Table IX: their FLISM against
GOAL's LISM; of glit's FLISM at least as much is asked)."""
_BUSY = 0.1
"""Cores taken by others from which on times are doubtful."""


def column_figures(column: Column, passes: Sequence[Row]) -> Row:
    """A column's figures over the counted passes; seconds are seconds an image."""
    last = passes[-1]
    number = last["num_images"]
    total = [total_s(each) / number for each in passes]
    return {
        "title": column.title,
        "parts_s": {part: spread([p["parts_s"][part] / number for p in passes]) for part in PARTS},
        "total_s": spread(total),
        "cpu_s": spread([each["cpu_s"] / number for each in passes]),
        "images_per_s": spread([1 / seconds for seconds in total]),
        "regions_per_image": last["num_regions"] / number,
        "num_dropped": last["num_dropped"],
        "peak_host_mb": last["peak_host_mb"],
        "peak_device_mb": last["peak_device_mb"],
    }


def ratios(passes: Mapping[str, Sequence[Row]]) -> list[Row]:
    """Return how many times faster, over the repeats: those of one round are compared with each
    other."""
    found = []
    for fast, slow, paper in RATIOS:
        if fast not in passes:
            continue
        rounds = zip(passes[fast], passes[slow], strict=True)
        times, cpu = zip(
            *((total_s(b) / total_s(a), b["cpu_s"] / a["cpu_s"]) for a, b in rounds), strict=True
        )
        found.append({
            "fast": fast, "slow": slow, "times": spread(times), "cpu": spread(cpu), "paper": paper,
        })  # fmt: skip
    return found


def _memory(megabytes: float | None) -> str:
    return "–" if megabytes is None else f"{megabytes / 1024:.2f} GiB"


_CELLS: Mapping[str, Callable[[Row], str]] = {
    "waiting for decoding": lambda c: with_range(c["parts_s"]["wait"]),
    "propose": lambda c: with_range(c["parts_s"]["propose"]),
    "crop + encode": lambda c: with_range(c["parts_s"]["encode"]),
    "match": lambda c: with_range(c["parts_s"]["match"]),
    "write": lambda c: with_range(c["parts_s"]["write"]),
    "total": lambda c: with_range(c["total_s"]),
    "CPU seconds": lambda c: with_range(c["cpu_s"]),
    "images a second": lambda c: with_range(c["images_per_s"]),
    "regions an image": lambda c: figure(c["regions_per_image"]),
    "peak device memory": lambda c: _memory(c["peak_device_mb"]),
    "peak host memory": lambda c: _memory(c["peak_host_mb"]),
}
_QUALITY: Mapping[str, Callable[[Row], str]] = {
    "object sentences with the right region": lambda q: f"{100 * q['right']:.1f} %",
    "mean IoU of the chosen region": lambda q: f"{q['mean_iou']:.3f}",
    "global wins, all sentences": lambda q: f"{100 * q['global_wins']:.1f} %",
    "global wins, object sentences": lambda q: f"{100 * q['global_wins_object']:.1f} %",
}


def _rows(cells: Mapping[str, Callable[[Row], str]], columns: Mapping[str, Row]) -> list[list[str]]:
    return [[name, *map(cell, columns.values())] for name, cell in cells.items()]


def main_rows(report: Row) -> list[list[str]]:
    """The table: a row for each part's seconds an image and each other figure, by column."""
    return _rows(_CELLS, report["columns"])


def ratio_row(report: Row, ratio: Row) -> list[str]:
    """A row of the table of ratios."""
    fast, slow = (report["columns"][ratio[which]]["title"] for which in ("fast", "slow"))
    name = f"{fast} against {slow}"
    paper = f"{ratio['paper']} ×" if ratio["paper"] else ""
    return [name, f"{with_range(ratio['times'])} ×", f"{with_range(ratio['cpu'])} ×", paper]


def headline(report: Row) -> str:
    """Return one line on the images, the weights and the machine of a run."""
    settings, machine = report["settings"], report["machine"]
    processor = f"{machine['cpu']}, {machine['instructions']}, {machine['cores']} cores"
    where = machine.get("gpu") or processor
    return f"{settings['images']}; {settings['weights']} weights; {where}"


def busy(report: Row) -> list[str]:
    """A warning if other processes took a noticeable part of the machine."""
    if report["others"] < _BUSY:
        return []
    return [
        f"**The machine was not idle**: others took up to {figure(report['others'])} cores during "
        "a pass. Of such a run, compare CPU seconds alone, and those with care."
    ]


def page(report: Row) -> Page:
    """The whole report."""
    settings = report["settings"]
    titles = [column["title"] for column in report["columns"].values()]
    number = settings["warm_up_images"]
    warm = "1 image" if number == 1 else f"{number} images"
    strong = ("total", "images a second")
    blocks: list[str | Table] = [
        "# LISM against FLISM",
        f"{headline(report)}. Medians of {settings['repeats']} (min–max), the columns in turn, "
        f"after a warm-up on {warm} that is not counted.",
        *busy(report),
        Table(heads=["seconds an image", *titles], rows=main_rows(report), strong=strong),
        "## How many times faster",
        Table(
            heads=["", "here", "in CPU seconds", "papers, their machine"],
            rows=[ratio_row(report, ratio) for ratio in report["ratios"]],
        ),
    ]
    if report["quality"] is not None:
        blocks.append(f"## Quality, on {report['num_quality']} scenes whose truth is known")
        blocks.append(Table(heads=["", *titles], rows=_rows(_QUALITY, report["quality"])))
    dropped = [
        f"{column['title']}: {column['num_dropped']} images got no region at all."
        for column in report["columns"].values()
        if column["num_dropped"]
    ]
    return [
        *blocks,
        "## Notes",
        "\n".join(f"- {note}" for note in (*report["notes"], *dropped)),
        "## Machine",
        "; ".join(f"{key}: {value}" for key, value in report["machine"].items()) + ".",
        "; ".join(f"{key} {value}" for key, value in report["versions"].items()) + ".",
    ]
