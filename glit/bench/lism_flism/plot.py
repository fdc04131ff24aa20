"""The picture: seconds an image on a logarithmic scale, and where the time of each column goes."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from glit.bench.harness import Row
from glit.bench.lism_flism.columns import PARTS
from glit.bench.lism_flism.report import headline
from glit.runtime.tables import figure

_NAMES = ("wait", "propose", "crop + encode", "match", "write")
"""Names of :data:`PARTS` in the plot."""
_LABEL_FROM = 0.07
_FAINT = "#777777"
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7")
"""Colours that colour-blind readers can tell apart (Okabe and Ito)."""
_LINE = 120
"""Characters of a line above the picture."""
_STYLE: Any = {
    "svg.hashsalt": "glit", "svg.fonttype": "path", "font.family": "DejaVu Sans",
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "grid.color": "#e5e5e5", "legend.frameon": False,
}  # fmt: skip


def plot(report: Row, png: Path, svg: Path) -> None:
    """Draw and write the picture; the same report gives the same SVG bytes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    with matplotlib.rc_context(_STYLE):
        layout: Any = {"figsize": (12.5, 4.4), "sharey": True, "layout": "constrained"}
        drawing, (totals, shares) = plt.subplots(ncols=2, **layout)
        title = "LISM and FLISM: one image at a time, and in glit"
        lines = [title, *textwrap.wrap(headline(report), _LINE)]
        drawing.suptitle("\n".join(lines), x=0.01, ha="left")
        _totals(totals, report)
        _shares(shares, report)
        totals.invert_yaxis()
        drawing.savefig(png, dpi=160, metadata={"Software": None})
        # neither a clock nor a version
        drawing.savefig(svg, metadata={"Date": None, "Creator": None})
        plt.close(drawing)


def _totals(axis: Any, report: Row) -> None:
    """Median and range of the total; how many times faster than the first."""
    columns = report["columns"]
    titles = [column["title"] for column in columns.values()]
    median, low, high = (
        np.array([column["total_s"][name] for column in columns.values()])
        for name in ("median", "min", "max")
    )
    faster = {r["fast"]: r["times"]["median"] for r in report["ratios"] if r["slow"] == "lism-one"}
    colours = [_FAINT if key.endswith("one") else _COLOURS[0] for key in columns]
    bars = axis.barh(titles, median, color=colours, height=0.5, xerr=(median - low, high - median))
    texts = [
        f"{figure(seconds)} s" + (f", {figure(faster[key])} × faster" if key in faster else "")
        for key, seconds in zip(columns, median, strict=True)
    ]
    axis.bar_label(bars, texts, padding=8, weight="bold")
    axis.set_xscale("log")
    axis.set_xlim(low.min() / 2.2, high.max() * (high.max() / low.min()) ** 0.75)
    repeats, fixed = report["settings"]["repeats"], report["settings"]["num_fixed"]
    said = f"median of {repeats}, lines: the range"
    said += "" if fixed is None else f"\nrandom weights: {fixed} fixed regions an image, speed only"
    axis.set_xlabel(f"seconds an image, log scale; {said}")
    axis.grid(axis="x")


def _shares(axis: Any, report: Row) -> None:
    """The parts of each total, each bar its whole."""
    columns = report["columns"].values()
    medians = np.array([[each["parts_s"][part]["median"] for part in PARTS] for each in columns])
    shares = medians / medians.sum(axis=1, keepdims=True)
    starts = shares.cumsum(axis=1) - shares
    for name, share, start, colour in zip(_NAMES, shares.T, starts.T, _COLOURS, strict=True):
        bars = axis.barh(range(len(share)), share, left=start, label=name, color=colour, height=0.5)
        texts = [f"{100 * each:.0f} %" if each >= _LABEL_FROM else "" for each in share]
        axis.bar_label(bars, texts, label_type="center", weight="bold")
    axis.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=len(_NAMES))
    axis.set_xlim(0, 1)
    axis.set_xlabel("share of the total; wait: for decoding")
    axis.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
