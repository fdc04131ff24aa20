"""The parts in turn, each with its time, whatever becomes of the others."""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from glit.bench.gpu.bench import SCALES, Bench
from glit.bench.harness import Row, record, recorded, run_command, write_report
from glit.bench.machine import describe_machine, versions
from glit.bench.tables import Page, Table, figure
from glit.errors import StoppedError
from glit.runtime.process_state import without_bars

MOST_S = 540.0
"""Seconds of all parts together."""
_LEAST_S = 5.0
"""A part is not begun with less time than this."""


PARTS: Mapping[str, float] = {
    "matrix": 60, "stages": 240, "training": 240,
}  # fmt: skip
"""Modules of this folder with a function ``measure`` that yields rows, and after how many seconds
each is ended. In the order of work: what others need first."""


def run(
    folder: Path,
    *,
    device: str,
    scale: str,
    progress: Callable[[str], None],
    parts: Mapping[str, float] | None = None,
    most_s: float = MOST_S,
) -> dict[str, Any]:
    """Measure all parts; returns what ``gpu.json`` holds.

    Args:
        folder: takes ``PART.json`` and ``PART.log`` of every part, ``gpu.json`` and ``gpu.md``.
        device: ``cuda`` or ``cpu``.
        scale: ``full`` or ``tiny``.
        progress: told what is going on.
        parts: which, and the seconds of each; None for all.
        most_s: seconds of all parts together.

    Raises:
        StoppedError: Ctrl-C; what was measured is in the folder.
    """
    started = time.monotonic()
    done: list[dict[str, Any]] = []
    report = {
        "machine": describe_machine(device), "versions": versions(), "scale": scale,
        "device": device, "parts": done,
    }  # fmt: skip
    for name, longest_s in (PARTS if parts is None else parts).items():
        left = most_s - (time.monotonic() - started)
        progress(f"{name} (at most {min(longest_s, max(left, 0)):.0f} s)")
        rates = next((each["details"].get("rates", {}) for each in done), {})
        try:
            done.append(_one(name, folder, device, scale, rates, left, longest_s))
        except KeyboardInterrupt as error:
            raise StoppedError(f"stopped; what was measured is in {folder}") from error
        progress(f"{name}: {done[-1]['failure'] or 'done'} ({done[-1]['seconds']:.0f} s)")
        write_report(folder, "gpu", report, page(report))
    return report


def _one(
    name: str,
    folder: Path,
    device: str,
    scale: str,
    rates: dict[str, float],
    left: float,
    longest_s: float,
) -> dict[str, Any]:
    """What a part found, how long it took, and in one line how it failed if it did."""
    output, log = folder / f"{name}.json", folder / f"{name}.log"
    output.unlink(missing_ok=True)
    seconds, failure = 0.0, "not begun: no time was left"
    if left >= _LEAST_S:
        log.unlink(missing_ok=True)
        words = ["glit.bench.gpu.run", name, scale, device, str(output), json.dumps(rates)]
        ended = run_command(words, log, most_s=min(longest_s, left))
        seconds, failure = ended.seconds, ended.failure
    return {"name": name, **recorded(output), "seconds": seconds, "failure": failure}


def run_part(name: str, scale: str, device: Any, output: str, rates: str) -> None:
    """Run a part in this process; its figures are in ``output``, also those before it fails.

    Args:
        name: of the module.
        scale: ``full`` or ``tiny``.
        device: ``cuda`` or ``cpu``.
        output: JSON file.
        rates: JSON of the matrix rates measured before.
    """
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="glit-gpu-") as folder, without_bars():
        bench = Bench(
            scale=SCALES[scale], device=device, scratch=Path(folder), rates=json.loads(rates)
        )
        rows = importlib.import_module(f"glit.bench.gpu.{name}").measure(bench)
        record(rows, Path(output))


HEADINGS = ("what", "measured", "limit", "ratio", "first bottleneck")


def cells(row: Row) -> tuple[str, str, str, str, str]:
    """A line of the table.

    >>> cells(
    ...     {"what": "copy", "measured": 20.0, "unit": "GB/s", "limit": 40.0, "bottleneck": "bus"}
    ... )
    ('copy', '20.0 GB/s', '40.0', '0.50', 'bus')
    """
    measured, limit = row["measured"], row["limit"]
    shown, ratio = (figure(limit), f"{measured / limit:.2f}") if limit else ("–", "–")
    return row["what"], f"{figure(measured)} {row['unit']}", shown, ratio, row["bottleneck"]


def page(report: dict[str, Any]) -> Page:
    """The whole report."""
    lines = [f"- {name}: {value}" for name, value in report["machine"].items()]
    lines += [f"- {name} {version}" for name, version in report["versions"].items()]
    rows = [cells(row) for part in report["parts"] for row in part["rows"]]
    blocks: list[str | Table] = ["# glit on a GPU", "\n".join(lines), _warning(report)]
    blocks.append(Table(heads=HEADINGS, rows=rows, words=len(HEADINGS)))
    blocks.append("\n".join(_remarks(report)))
    return blocks


def _warning(report: dict[str, Any]) -> str:
    text = (
        "Full-size models have random weights: speed only. Limits: measured matrix rates over "
        "counted operations, data sheets, or the part of the same work that cannot be left out."
    )
    if report["scale"] == "tiny":
        return f"Tiny shapes: this shows that all parts run; the figures mean nothing. {text}"
    return text if report["device"] == "cuda" else f"Without a GPU: of the processor. {text}"


def _remarks(report: dict[str, Any]) -> Iterator[str]:
    for part in report["parts"]:
        if part["failure"]:
            count = len(part["rows"])
            yield f"- {part['name']}: {part['failure']} ({count} figures before; see its log)"
        for note in part["notes"]:
            yield f"- {part['name']}: {note}"


if __name__ == "__main__":
    run_part(*sys.argv[1:])
