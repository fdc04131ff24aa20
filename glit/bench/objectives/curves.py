"""Learning curves: what every objective finds, by the number of scenes it has learned from."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from glit.bench.chart_style import FAINT, STYLE
from glit.bench.objectives.table import BASELINE, Row, cell

_COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c6d00", "#555555",
)  # fmt: skip
"""Told apart by everyone (Okabe and Ito); after the last with another marker."""
_MARKERS = "osD^"


def both_ways(row: Row) -> list[float]:
    """R@1, the mean of both ways, of every seed."""
    return [(each["t2i"] + each["i2t"]) / 2 for each in row.figures]


def markdown(rows: Mapping[int, Sequence[Row]]) -> str:
    """A column for every number of scenes, per cent; empty where an objective was not run."""
    sizes = sorted(rows)
    names = dict.fromkeys(row.name for size in sizes for row in rows[size])
    of = {(row.name, size): row for size in sizes for row in rows[size]}
    lines = [
        "## Learning curves: R@1, the mean of both ways",
        "",
        "|  | " + " | ".join(f"{size:,} scenes" for size in sizes) + " |",
        "| --- |" + " ---: |" * len(sizes),
    ]
    for name in names:
        cells = [cell(both_ways(of[name, size])) if (name, size) in of else "" for size in sizes]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def plot(rows: Mapping[int, Sequence[Row]], svg: Path) -> None:
    """A line for every objective, from its smallest number of scenes to its largest.

    The same rows give the same bytes.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    sizes = sorted(rows)
    names = dict.fromkeys(row.name for size in sizes for row in rows[size] if row.lr is not None)
    with matplotlib.rc_context({**STYLE, "ytick.color": FAINT}):
        drawing, axis = plt.subplots(figsize=(8.5, 5.2))
        drawing.subplots_adjust(left=0.09, right=0.8, top=0.95, bottom=0.12)
        ends = []
        for number, name in enumerate(names):
            points = [(size, both_ways(r)) for size in sizes for r in rows[size] if r.name == name]
            colour = _COLOURS[number % len(_COLOURS)]
            means = [100 * statistics.mean(found) for _, found in points]
            axis.plot(
                [size for size, _ in points], means, color=colour,
                marker=_MARKERS[number // len(_COLOURS) % len(_MARKERS)], markersize=5,
                linewidth=2.6 if name == BASELINE else 1.4,
            )  # fmt: skip
            for (size, found), _ in zip(points, means, strict=True):
                axis.plot([size, size], [100 * min(found), 100 * max(found)], color=colour)
            ends.append((means[-1], points[-1][0], name, colour))
        start = [100 * both_ways(r)[0] for size in sizes for r in rows[size] if r.lr is None]
        if start:
            axis.axhline(start[0], color=FAINT, linestyle="--", linewidth=1)
            ends.append((start[0], sizes[-1], "no fine-tuning", FAINT))
        axis.set_xscale("log")
        axis.set_ylim(bottom=0)
        axis.set_xlim(sizes[0] / 1.08, sizes[-1] * 1.08)
        axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axis.minorticks_off()
        axis.set_xlabel("scenes learned from, logarithmic scale")
        axis.set_ylabel("R@1, mean of both ways, per cent; lines: all seeds")
        axis.grid(axis="y", color="#e5e5e5", linewidth=0.8)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
        _label(axis, ends)
        drawing.savefig(svg, metadata={"Date": None, "Creator": None})
        plt.close(drawing)


def _label(axis: Any, ends: list[tuple[float, int, str, str]]) -> None:
    """Names beside the right edge, moved up until none covers another."""
    gap = 0.036 * (axis.get_ylim()[1] - axis.get_ylim()[0])
    at = -gap
    for height, size, name, colour in sorted(ends):
        at = max(height, at + gap)
        axis.annotate(
            name,
            xy=(size, height), xycoords="data",
            xytext=(1.03, at), textcoords=axis.get_yaxis_transform(),
            va="center", color=colour, weight="bold" if name == BASELINE else "normal",
            arrowprops={"arrowstyle": "-", "color": FAINT, "linewidth": 0.7, "linestyle": ":"},
        )  # fmt: skip
