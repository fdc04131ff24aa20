"""The benchmark's output folder: JSON, Markdown, PNG and SVG."""

from __future__ import annotations

from pathlib import Path

from glit.bench.lism_flism.plot import plot
from glit.bench.lism_flism.report import Report
from glit.bench.lism_flism.show import markdown
from glit.errors import UserError
from glit.storage import to_json

_NAME = "lism-flism"


def check_writable(folder: Path) -> None:
    """Make the output folder before anything takes long.

    Raises:
        UserError: it cannot be made, or nothing can be written into it.
    """
    probe = folder / f"{_NAME}.json.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"{folder}: cannot write there ({error.strerror}); choose another folder with -o"
        ) from error


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write all four files; their paths."""
    paths = {suffix: folder / f"{_NAME}.{suffix}" for suffix in ("json", "md", "png", "svg")}
    paths["json"].write_bytes(to_json(report.as_dict()))
    paths["md"].write_text(markdown(report), encoding="utf-8")
    plot(report, paths["png"], paths["svg"])
    return list(paths.values())
