"""The picture: seconds an image on a logarithmic scale, and where the time of each column goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glit.bench.lism_flism.job import COLUMNS, PARTS
from glit.bench.lism_flism.report import ColumnReport, Report
from glit.bench.lism_flism.show import headline
from glit.bench.pictures import FAINT, GRID, INK, hide_frame, picture
from glit.bench.tables import figure

_COLOURS = {
    "wait": "#8c8c8c",
    "propose": "#0072b2",
    "encode": "#e69f00",
    "match": "#009e73",
    "write": "#cc79a7",
}  # told apart by everyone (Okabe and Ito)
_DARK_ON = ("encode", "write")
"""Parts whose colour is too light for white figures."""
_NAMES = {
    "wait": "decode",
    "propose": "propose",
    "encode": "crop + encode",
    "match": "match",
    "write": "write",
}
_LABEL_FROM = 0.07


def plot(report: Report, png: Path, svg: Path) -> None:
    """Draw and write the picture; the same report gives the same SVG bytes."""
    layout: Any = {"figsize": (12.5, 4.9), "sharey": True, "width_ratios": (1.0, 1.15)}
    with picture(png, svg, nrows=1, ncols=2, **layout) as (drawing, axes):
        drawing.subplots_adjust(left=0.155, right=0.975, top=0.74, bottom=0.15, wspace=0.06)
        _totals(axes[0], report)
        _shares(axes[1], report)
        drawing.text(
            0.02,
            0.93,
            "LISM and FLISM: one image at a time, and in glit",
            fontsize=17,
            weight="bold",
        )
        drawing.text(0.02, 0.865, headline(report), color=FAINT)
        drawing.text(0.02, 0.025, _footer(report), color=FAINT, fontsize=8.5)


def _totals(axis: Any, report: Report) -> None:
    """Left: the total as a point with its range; how many times faster than the first."""
    columns = report.columns
    totals = [column.total_s for column in columns]
    low, high = min(t.min for t in totals), max(t.max for t in totals)
    left, right = low / 2.2, high * (high / low) ** 0.75
    axis.set_xscale("log")
    axis.set_xlim(left, right)
    axis.set_ylim(len(columns) - 0.45, -0.6)
    for row, (column, total) in enumerate(zip(columns, totals, strict=True)):
        colour = _COLOURS["propose"] if column.column.in_glit else FAINT
        axis.plot([left, total.median], [row, row], color=colour, linewidth=7, alpha=0.22)
        axis.plot([total.min, total.max], [row, row], color=colour, linewidth=2)
        axis.plot([total.median], [row], "o", color=colour, markersize=10)
        label = axis.annotate(
            f"{figure(total.median)} s",
            (total.max, row),
            xytext=(11, 0),
            textcoords="offset points",
            va="center",
            weight="bold",
            fontsize=12,
        )
        if row:
            axis.annotate(
                f"{figure(report.ratio(column.column.key, COLUMNS[0].key).times.median)} × faster",
                xy=(1, 0.5),
                xycoords=label,
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
                color=colour,
            )
    axis.set_yticks(range(len(columns)), [column.column.title for column in columns], fontsize=11)
    axis.tick_params(axis="y", length=0, labelcolor=INK)
    axis.set_xlabel("seconds an image, logarithmic scale")
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.grid(axis="x", color=GRID, linewidth=0.8)
    axis.set_axisbelow(True)
    hide_frame(axis, "top", "right", "left")


def _shares(axis: Any, report: Report) -> None:
    """Right: the parts of each total, each bar its whole."""
    for row, column in enumerate(report.columns):
        _stacked(axis, row, column)
    handles = [axis.barh([0], [0], color=_COLOURS[part], label=_NAMES[part]) for part in PARTS]
    axis.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        ncols=len(PARTS),
        frameon=False,
        handlelength=0.9,
        handleheight=0.9,
        columnspacing=1.3,
    )
    axis.set_xlim(0, 1)
    axis.set_xlabel("where the time goes, share of the total")
    axis.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    axis.tick_params(axis="y", length=0)
    hide_frame(axis, "top", "right", "left")


def _stacked(axis: Any, row: int, column: ColumnReport) -> None:
    medians = {part: column.parts_s[part].median for part in PARTS}
    whole, start = sum(medians.values()), 0.0
    for part, seconds in medians.items():
        share = seconds / whole
        axis.barh([row], [share], left=[start], height=0.56, color=_COLOURS[part])
        if share >= _LABEL_FROM:
            axis.text(
                start + share / 2,
                row,
                f"{100 * share:.0f} %",
                ha="center",
                va="center",
                color=INK if part in _DARK_ON else "white",
                weight="bold",
                fontsize=9.5,
            )
        start += share


def _footer(report: Report) -> str:
    settings = report.settings
    spread = "bars" if settings.repeats > 1 else ""
    text = f"Median of {settings.repeats} {'repeats' if settings.repeats > 1 else 'repeat'}"
    text += ", lines: smallest to largest." if spread else "."
    text += " Decode: only what was waited for."
    if settings.num_fixed is not None:
        text += f" Random weights: {settings.num_fixed} fixed regions an image, speed only."
    return text
