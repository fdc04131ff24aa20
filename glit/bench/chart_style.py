"""How the benchmarks' pictures look; with it the same figures give the same SVG bytes."""

from __future__ import annotations

from typing import Any

INK, FAINT = "#222222", "#777777"
STYLE: Any = {
    "svg.hashsalt": "glit",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": FAINT,
    "xtick.color": FAINT,
}
"""Settings of matplotlib."""
