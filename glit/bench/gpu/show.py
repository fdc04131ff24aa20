"""The report as Markdown and on the terminal, with the same cells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from glit.bench.gpu.row import Row
from glit.bench.gpu.run import Report
from glit.bench.lism_flism.show import figure

HEADINGS = ("what", "measured", "limit", "ratio", "first bottleneck")


def cells(row: Row) -> tuple[str, str, str, str, str]:
    """A line of the table.

    >>> cells(Row(what="copy", measured=20.0, unit="GB/s", limit=40.0, bottleneck="bus"))
    ('copy', '20.0 GB/s', '40.0', '0.50', 'bus')
    """
    limit = "–" if row.limit is None else figure(row.limit)
    ratio = "–" if row.ratio is None else f"{row.ratio:.2f}"
    return row.what, f"{figure(row.measured)} {row.unit}", limit, ratio, row.bottleneck


def markdown(report: Report) -> str:
    """The whole report."""
    lines = ["# glit on a GPU", "", *(f"- {k}: {v}" for k, v in report.machine.items())]
    lines += [f"- {name} {version}" for name, version in report.versions.items()]
    lines += ["", *_warnings(report), "", _line(HEADINGS), _line(["---"] * len(HEADINGS))]
    lines += [_line(cells(row)) for part in report.parts for row in part.rows]
    lines += ["", *_remarks(report)]
    for part in report.parts:
        for name, value in part.details.items():
            if name.startswith("kernels of "):
                lines += ["", f"## The device's time: {name.removeprefix('kernels of ')}", ""]
                lines += [_line(("operation", "calls", "ms", "share")), _line(["---"] * 4)]
                lines += [_line(_kernel_cells(each)) for each in value]
    return "\n".join(lines) + "\n"


def print_report(report: Report, console: Console) -> None:
    """The table, and what is to be known about it."""
    for line in _warnings(report):
        console.print(line, soft_wrap=True)
    table = Table(*HEADINGS)
    for part in report.parts:
        for row in part.rows:
            table.add_row(*cells(row))
        table.add_section()
    console.print(table)
    for line in _remarks(report):
        console.print(line, soft_wrap=True, markup=False)


def _warnings(report: Report) -> Iterator[str]:
    if report.scale == "tiny":
        yield "Tiny shapes: this shows that all parts run; the figures mean nothing."
    elif report.device != "cuda":
        yield "Without a GPU: these figures are of the processor."
    yield "Full-size models have random weights: speed only. Limits: measured matrix rates over "
    yield "counted operations, data sheets, or the part of the same work that cannot be left out."


def _remarks(report: Report) -> Iterator[str]:
    for part in report.parts:
        if part.failure:
            yield f"- {part.name}: {part.failure} ({len(part.rows)} figures before; see its log)"
        for note in part.notes:
            yield f"- {part.name}: {note}"


def _line(words: tuple[str, ...] | list[str]) -> str:
    return "| " + " | ".join(word.replace("|", "/") for word in words) + " |"


def _kernel_cells(each: dict[str, Any]) -> tuple[str, str, str, str]:
    name = each["kernel"]
    short = name if len(name) <= 80 else name[:77] + "..."
    return short, str(each["calls"]), figure(each["ms"]), f"{each['share']:.2f}"
