"""How the benchmarks' pictures look; the same figures give the same SVG bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

INK, FAINT, GRID = "#222222", "#777777", "#e5e5e5"
COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c6d00", "#555555",
)  # fmt: skip
"""Told apart by everyone (Okabe and Ito)."""
STYLE: Any = {
    "svg.hashsalt": "glit", "svg.fonttype": "path", "font.family": "DejaVu Sans", "font.size": 10,
    "text.color": INK, "axes.edgecolor": FAINT, "axes.labelcolor": FAINT, "xtick.color": FAINT,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "grid.color": GRID, "legend.frameon": False,
}  # fmt: skip
"""Settings of matplotlib."""
_SAVED: dict[str, dict[str, Any]] = {
    ".png": {"dpi": 160, "metadata": {"Software": None}},
    ".svg": {"metadata": {"Date": None, "Creator": None}},  # neither a clock nor a version
}


@contextlib.contextmanager
def picture(*paths: Path, style: Any = None, **layout: Any) -> Iterator[tuple[Any, Any]]:
    """A figure and its axes to draw on; written to ``paths`` (PNG, SVG) at the end."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    with matplotlib.rc_context({**STYLE, **(style or {})}):
        drawing, axes = plt.subplots(**layout)
        yield drawing, axes
        for path in paths:
            drawing.savefig(path, **_SAVED[path.suffix])
        plt.close(drawing)
