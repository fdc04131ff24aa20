"""The benchmark's output folder: JSON, Markdown, PNG and SVG."""

from __future__ import annotations

from pathlib import Path

from glit.bench.lism_flism.plot import plot
from glit.bench.lism_flism.report import Report
from glit.bench.lism_flism.show import markdown
from glit.storage.store import to_json

_NAME = "lism-flism"


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write all four files; their paths."""
    paths = {suffix: folder / f"{_NAME}.{suffix}" for suffix in ("json", "md", "png", "svg")}
    paths["json"].write_bytes(to_json(report.as_dict()))
    paths["md"].write_text(markdown(report), encoding="utf-8")
    plot(report, paths["png"], paths["svg"])
    return list(paths.values())
