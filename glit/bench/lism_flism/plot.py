"""The picture: seconds an image on a logarithmic scale, and where the time of each column goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from glit.bench.harness import Row
from glit.bench.lism_flism.columns import PARTS
from glit.bench.lism_flism.report import headline
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


def plot(report: Row, png: Path, svg: Path) -> None:
    """Draw and write the picture; the same report gives the same SVG bytes."""
    layout: Any = {"figsize": (12.5, 4.9), "sharey": True, "width_ratios": (1.0, 1.15)}
    title = "LISM and FLISM: one image at a time, and in glit"
    with picture(png, svg, nrows=1, ncols=2, **layout) as (drawing, axes):
        drawing.subplots_adjust(left=0.155, right=0.975, top=0.74, bottom=0.15, wspace=0.06)
        _totals(axes[0], report)
        _shares(axes[1], report)
        drawing.text(0.02, 0.93, title, fontsize=17, weight="bold")
        drawing.text(0.02, 0.865, headline(report), color=FAINT)
        drawing.text(0.02, 0.025, _footer(report), color=FAINT, fontsize=8.5)


def _totals(axis: Any, report: Row) -> None:
    """Left: the total as a point with its range; how many times faster than the first."""
    columns = report["columns"]
    totals = [column["total_s"] for column in columns.values()]
    low, high = min(t["min"] for t in totals), max(t["max"] for t in totals)
    left, right = low / 2.2, high * (high / low) ** 0.75
    faster = {r["fast"]: r["times"]["median"] for r in report["ratios"] if r["slow"] == "lism-one"}
    beside: Any = {"textcoords": "offset points", "va": "center"}
    axis.set_xscale("log")
    axis.set_xlim(left, right)
    axis.set_ylim(len(columns) - 0.45, -0.6)
    for row, (key, total) in enumerate(zip(columns, totals, strict=True)):
        colour = _COLOURS["propose"] if key.endswith("glit") else FAINT
        axis.plot([left, total["median"]], [row, row], color=colour, linewidth=7, alpha=0.22)
        axis.plot([total["min"], total["max"]], [row, row], color=colour, linewidth=2)
        axis.plot([total["median"]], [row], "o", color=colour, markersize=10)
        text, at = f"{figure(total['median'])} s", (total["max"], row)
        label = axis.annotate(text, at, xytext=(11, 0), weight="bold", fontsize=12, **beside)
        if key in faster:
            text = f"{figure(faster[key])} × faster"
            axis.annotate(text, (1, 0.5), xycoords=label, xytext=(8, 0), color=colour, **beside)
    titles = [column["title"] for column in columns.values()]
    axis.set_yticks(range(len(columns)), titles, fontsize=11)
    axis.tick_params(axis="y", length=0, labelcolor=INK)
    axis.set_xlabel("seconds an image, logarithmic scale")
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.grid(axis="x", color=GRID, linewidth=0.8)
    axis.set_axisbelow(True)
    hide_frame(axis, "top", "right", "left")


def _shares(axis: Any, report: Row) -> None:
    """Right: the parts of each total, each bar its whole."""
    columns = report["columns"].values()
    medians = np.array(
        [[column["parts_s"][part]["median"] for part in PARTS] for column in columns]
    )
    shares = medians / medians.sum(axis=1, keepdims=True)
    starts = shares.cumsum(axis=1) - shares
    for part, share, start in zip(PARTS, shares.T, starts.T, strict=True):
        look: Any = {"height": 0.56, "color": _COLOURS[part], "label": _NAMES[part]}
        bars = axis.barh(range(len(share)), share, left=start, **look)
        texts = [f"{100 * each:.0f} %" if each >= _LABEL_FROM else "" for each in share]
        font: Any = {"color": INK if part in _DARK_ON else "white", "weight": "bold"}
        axis.bar_label(bars, texts, label_type="center", fontsize=9.5, **font)
    axis.legend(
        loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=len(PARTS), frameon=False,
        handlelength=0.9, handleheight=0.9, columnspacing=1.3,
    )  # fmt: skip
    axis.set_xlim(0, 1)
    axis.set_xlabel("where the time goes, share of the total")
    axis.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    axis.tick_params(axis="y", length=0)
    hide_frame(axis, "top", "right", "left")


def _footer(report: Row) -> str:
    repeats, fixed = report["settings"]["repeats"], report["settings"]["num_fixed"]
    several = repeats > 1
    text = f"Median of {repeats} {'repeats, lines: smallest to largest' if several else 'repeat'}."
    text += " Decode: only what was waited for."
    if fixed is not None:
        text += f" Random weights: {fixed} fixed regions an image, speed only."
    return text
