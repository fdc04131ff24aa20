"""The report as files, and as a table on the terminal; both show the same cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console

from glit.bench.lism_flism.job import COLUMNS, CROP
from glit.bench.lism_flism.report import TABLE_X, ColumnReport, Report
from glit.bench.tables import figure, markdown_table, print_table, with_range
from glit.storage.store import to_json

_DAYS_FROM_MIN = 2 * 1440
_WIDE = 110  # columns of a terminal on which ranges fit beside medians
Row = list[str]


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


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def _floor(which: str) -> Callable[[ColumnReport], str]:
    def cell(column: ColumnReport) -> str:
        if column.floor is None:
            return ""
        return figure(column.floor.propose_s if which == "propose" else column.floor.encode_s)

    return cell


def _part(name: str) -> Callable[[ColumnReport], str]:
    return lambda column: with_range(column.parts_s[name])


_CELLS: tuple[tuple[str, Callable[[ColumnReport], str]], ...] = (
    ("decode", lambda column: with_range(column.decode_s)),
    ("· waiting for it", _part("wait")),
    ("propose", _part("propose")),
    ("· its floor", _floor("propose")),
    ("crop + encode", _part("encode")),
    ("· its floor", _floor("encode")),
    ("match", _part("match")),
    ("write", _part("write")),
    ("total", lambda column: with_range(column.total_s)),
    ("images a second", lambda column: with_range(column.images_per_s)),
    ("regions an image", lambda column: figure(column.regions_per_image)),
    ("peak device memory", lambda column: _memory(column.peak_device_mb)),
    ("peak host memory", lambda column: _memory(column.peak_host_mb)),
    ("device busy", lambda column: _share(column.busy_share)),
)
_STRONG = ("total", "images a second")


def main_rows(report: Report) -> list[Row]:
    """Seconds an image by part, and what else every column has a figure of."""
    rows = [[name, *(cell(column) for column in report.columns)] for name, cell in _CELLS]
    if report.settings.num_fixed is not None:
        own = [figure(column.proposed_per_image) for column in report.columns]
        rows.append(["proposed before they were fixed", *own])
    return rows


def ratio_rows(report: Report) -> list[Row]:
    """How many times faster, and the papers' figure."""
    titles = {column.key: column.title for column in COLUMNS}
    return [
        [
            f"{titles[ratio.fast]} against {titles[ratio.slow]}",
            f"{with_range(ratio.times)} ×",
            f"{ratio.paper} ×" if ratio.paper else "",
        ]
        for ratio in report.ratios
    ]


def parameter_rows(report: Report) -> list[Row]:
    """Millions of parameters by part, summed both ways."""

    def millions(name: str, *numbers: int) -> Row:
        return [name, *(f"{number / 1e6:.1f}" for number in numbers)]

    lism, flism = report.parameters["lism"], report.parameters["flism"]
    rows = [
        millions("image encoder: CLIP", lism.clip, flism.clip),
        millions("text encoder: CLIP", lism.clip, flism.clip),
        millions("proposer: SAM, YOLOS", lism.proposer, flism.proposer),
        millions("as the papers count (Table X)", lism.table_x, flism.table_x),
        millions("CLIP, which is one model, counted once", lism.once, flism.once),
    ]
    if report.settings.weights != "mini":
        rows.append(["Table X as printed", str(TABLE_X["lism"]), str(TABLE_X["flism"])])
    return rows


def quality_rows(report: Report) -> list[Row]:
    """Choices against the truth."""
    assert report.quality is not None
    found = [report.quality[column.key] for column in COLUMNS]
    return [
        [
            "object sentences with the right region",
            *(f"{100 * each.right:.1f} %" for each in found),
        ],
        ["mean IoU of the chosen region", *(f"{each.mean_iou:.3f}" for each in found)],
        ["global wins, all sentences", *(f"{100 * each.global_wins:.1f} %" for each in found)],
        [
            "global wins, object sentences",
            *(f"{100 * each.global_wins_object:.1f} %" for each in found),
        ],
    ]


def projection_rows(report: Report) -> list[Row]:
    """What the papers' data sets would take, beside what they took; a row has one unit."""
    rows: list[Row] = []
    for each in report.projections:
        in_days = each.paper_minutes["lism"] >= _DAYS_FROM_MIN
        here = [duration(each.minutes[column.key], in_days=in_days) for column in COLUMNS]
        papers = [
            duration(each.paper_minutes[method], in_days=in_days)
            if method in each.paper_minutes
            else "–"
            for method in ("lism", "flism")
        ]
        rows.append([each.name, *here, *papers])
    return rows


def headline(report: Report) -> str:
    """What was measured on what, in one line."""
    settings, machine = report.settings, report.machine
    where = machine.get("gpu") or f"{machine['cpu']}, {machine['cores']} cores"
    return f"{settings.images}; {settings.weights} weights; {where}"


def markdown(report: Report) -> str:
    """The whole report as a page."""
    settings = report.settings
    titles = [column.title for column in COLUMNS]
    warm = "1 image" if settings.warm_up_images == 1 else f"{settings.warm_up_images} images"
    lines = [
        "# LISM against FLISM",
        "",
        f"{headline(report)}. Medians of {settings.repeats} (min–max), the columns in turn, after "
        f"a warm-up on {warm} that is not counted.",
        "",
        *markdown_table(["seconds an image", *titles], main_rows(report), strong=_STRONG),
        "",
        *_floor_lines(report),
        "## How many times faster",
        "",
        *markdown_table(["", "here", "papers, their machine"], ratio_rows(report)),
        "",
        "## Parameters, millions",
        "",
        *markdown_table(["", "LISM", "FLISM"], parameter_rows(report)),
        "",
    ]
    if report.quality is not None:
        lines += [
            f"## Quality, on {report.num_quality} scenes whose truth is known",
            "",
            *markdown_table(["", *titles], quality_rows(report)),
            "",
        ]
    lines += [
        "## Projection",
        "",
        "**Not measured**: the median seconds an image above times the number of images. The "
        "papers' figures are of other hardware and other images.",
        "",
        *markdown_table(
            ["projection", *titles, "papers: LISM", "papers: FLISM"], projection_rows(report)
        ),
        "",
        "## Notes",
        "",
        *(f"- {note}" for note in report.notes),
        *(f"- {note}" for note in _drop_notes(report)),
        "",
        "## Machine",
        "",
        "; ".join(f"{key}: {value}" for key, value in report.machine.items()) + ".",
        "",
        "; ".join(f"{key} {value}" for key, value in report.versions.items()) + ".",
    ]
    return "\n".join(lines) + "\n"


def _floor_lines(report: Report) -> list[str]:
    """What the floors are made of."""
    lines = [
        "Floors: operations counted from the models' shapes, over the rate of a large matrix "
        "product measured in the same process, in billions:",
        "",
    ]
    for column in report.columns:
        if column.floor is not None:
            parts = [
                f"{part.replace(CROP, f'CLIP, {figure(column.crops_per_image)} crops')} "
                f"{figure(operations / 1e9)}, {column.floor.rates[part].precision} at "
                f"{figure(column.floor.rates[part].operations_per_s / 1e9)} a second"
                for part, operations in column.floor.operations.items()
            ]
            lines.append(f"- {column.column.title}: {'; '.join(parts)}.")
    return [*lines, ""]


def _drop_notes(report: Report) -> Iterator[str]:
    for column in report.columns:
        if column.num_dropped:
            yield f"{column.column.title}: {column.num_dropped} images got no region at all."


def print_report(report: Report, console: Console) -> None:
    """The tables on the terminal."""
    titles = [
        column.title.replace(" one ", "\none ").replace(" in ", "\nin ") for column in COLUMNS
    ]
    console.print(f"\n{headline(report)}", soft_wrap=True)
    rows = main_rows(report)
    if console.width < _WIDE:
        rows = [[row[0], *(cell.partition(" (")[0] for cell in row[1:])] for row in rows]
    print_table(console, ["seconds an image", *titles], rows, strong=_STRONG)
    print_table(console, ["times faster", "here", "papers"], ratio_rows(report))
    print_table(console, ["parameters, millions", "LISM", "FLISM"], parameter_rows(report))
    if report.quality is not None:
        heads = [f"quality on\n{report.num_quality} scenes", *titles]
        print_table(console, heads, quality_rows(report))
    heads = ["projection,\nnot measured", *titles, "papers:\nLISM", "papers:\nFLISM"]
    print_table(console, heads, projection_rows(report))
    for note in (*report.notes, *_drop_notes(report)):
        console.print(f"- {note}")


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write JSON, Markdown, PNG and SVG; their paths."""
    from glit.bench.lism_flism.plot import plot

    json, page, *pictures = (folder / f"lism-flism.{end}" for end in ("json", "md", "png", "svg"))
    json.write_bytes(to_json(report.as_dict()))
    page.write_text(markdown(report), encoding="utf-8")
    plot(report, *pictures)
    return [json, page, *pictures]
