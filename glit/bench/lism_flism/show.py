"""The report as Markdown and as a table on the terminal; both show the same cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.table import Table

from glit.bench.lism_flism.job import COLUMNS, CROP
from glit.bench.lism_flism.report import TABLE_X, ColumnReport, Report, Spread

_SMALLEST_S = 0.0001
_DAYS_FROM_MIN = 2 * 1440
_WIDE = 110  # columns of a terminal on which ranges fit beside medians
Row = tuple[str, list[str]]


def figure(value: float) -> str:
    """Three digits, without an exponent.

    >>> figure(183.26), figure(1.23456), figure(0.012345), figure(0.00001), figure(0)
    ('183', '1.23', '0.0123', '< 0.0001', '0')
    """
    if value == 0:
        return "0"
    if value < _SMALLEST_S:
        return f"< {_SMALLEST_S}"
    decimals = 0
    while value * 10**decimals < 100 and decimals < 4:
        decimals += 1
    return f"{value:,.{decimals}f}"


def with_range(values: Spread) -> str:
    """The median, and min–max where it differs.

    >>> with_range(Spread(median=2.0, min=1.5, max=4.25))
    '2.00 (1.50–4.25)'
    """
    shown = figure(values.median)
    if figure(values.min) == figure(values.max):
        return shown
    return f"{shown} ({figure(values.min)}–{figure(values.max)})"


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
    rows = [(name, [cell(column) for column in report.columns]) for name, cell in _CELLS]
    if report.settings.num_fixed is not None:
        own = [figure(column.proposed_per_image) for column in report.columns]
        rows.append(("proposed before they were fixed", own))
    return rows


def ratio_rows(report: Report) -> list[Row]:
    """How many times faster, and the papers' figure."""
    titles = {column.key: column.title for column in COLUMNS}
    return [
        (
            f"{titles[ratio.fast]} against {titles[ratio.slow]}",
            [f"{with_range(ratio.times)} ×", f"{ratio.paper} ×" if ratio.paper else ""],
        )
        for ratio in report.ratios
    ]


def parameter_rows(report: Report) -> list[Row]:
    """Millions of parameters by part, summed both ways."""

    def millions(*numbers: int) -> list[str]:
        return [f"{number / 1e6:.1f}" for number in numbers]

    lism, flism = report.parameters["lism"], report.parameters["flism"]
    rows = [
        ("image encoder: CLIP", millions(lism.clip, flism.clip)),
        ("text encoder: CLIP", millions(lism.clip, flism.clip)),
        ("proposer: SAM, YOLOS", millions(lism.proposer, flism.proposer)),
        ("as the papers count (Table X)", millions(lism.table_x, flism.table_x)),
        ("CLIP, which is one model, counted once", millions(lism.once, flism.once)),
    ]
    if report.settings.weights != "mini":
        rows.append(("Table X as printed", [str(TABLE_X["lism"]), str(TABLE_X["flism"])]))
    return rows


def quality_rows(report: Report) -> list[Row]:
    """Choices against the truth."""
    assert report.quality is not None
    found = [report.quality[column.key] for column in COLUMNS]
    return [
        ("object sentences with the right region", [f"{100 * each.right:.1f} %" for each in found]),
        ("mean IoU of the chosen region", [f"{each.mean_iou:.3f}" for each in found]),
        ("global wins, all sentences", [f"{100 * each.global_wins:.1f} %" for each in found]),
        (
            "global wins, object sentences",
            [f"{100 * each.global_wins_object:.1f} %" for each in found],
        ),
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
        rows.append((each.name, [*here, *papers]))
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
        *_table(["seconds an image", *titles], main_rows(report), strong=_STRONG),
        "",
        *_floor_lines(report),
        "## How many times faster",
        "",
        *_table(["", "here", "papers, their machine"], ratio_rows(report)),
        "",
        "## Parameters, millions",
        "",
        *_table(["", "LISM", "FLISM"], parameter_rows(report)),
        "",
    ]
    if report.quality is not None:
        lines += [
            f"## Quality, on {report.num_quality} scenes whose truth is known",
            "",
            *_table(["", *titles], quality_rows(report)),
            "",
        ]
    lines += [
        "## Projection",
        "",
        "**Not measured**: the median seconds an image above times the number of images. The "
        "papers' figures are of other hardware and other images.",
        "",
        *_table(["projection", *titles, "papers: LISM", "papers: FLISM"], projection_rows(report)),
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


def _table(heads: Sequence[str], rows: Sequence[Row], *, strong: Sequence[str] = ()) -> list[str]:
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for name, cells in rows:
        mark = "**" if name in strong else ""
        lines.append("| " + " | ".join(f"{mark}{cell}{mark}" for cell in [name, *cells]) + " |")
    return lines


def print_report(report: Report, console: Console) -> None:
    """The tables on the terminal."""
    titles = [
        column.title.replace(" one ", "\none ").replace(" in ", "\nin ") for column in COLUMNS
    ]
    console.print(f"\n{headline(report)}", soft_wrap=True)
    rows = main_rows(report)
    if console.width < _WIDE:
        rows = [(name, [cell.partition(" (")[0] for cell in cells]) for name, cells in rows]
    _print(console, ["seconds an image", *titles], rows, strong=_STRONG)
    _print(console, ["times faster", "here", "papers"], ratio_rows(report))
    _print(console, ["parameters, millions", "LISM", "FLISM"], parameter_rows(report))
    if report.quality is not None:
        heads = [f"quality on\n{report.num_quality} scenes", *titles]
        _print(console, heads, quality_rows(report))
    heads = ["projection,\nnot measured", *titles, "papers:\nLISM", "papers:\nFLISM"]
    _print(console, heads, projection_rows(report))
    for note in (*report.notes, *_drop_notes(report)):
        console.print(f"- {note}")


def _print(
    console: Console, heads: Sequence[str], rows: Sequence[Row], *, strong: Sequence[str] = ()
) -> None:
    table = Table()
    table.add_column(heads[0])
    for head in heads[1:]:
        table.add_column(head, justify="right")
    for name, cells in rows:
        table.add_row(name, *cells, style="bold" if name in strong else None)
    console.print(table)
