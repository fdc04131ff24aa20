"""Measure how close glit comes to a GPU's limits: ``python -m tools.measure.gpu -o OUT``.

Runs the parts in turn, each with its time, whatever becomes of the others, and needs nothing from a
network; extras ``models``, ``sam`` and ``train``, and what else is there (Ray, vLLM).
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from glit.bench.harness import Row, record, recorded, run_command, write_report
from glit.bench.machine import describe_machine, versions
from glit.errors import StoppedError
from glit.models.device import pick_device
from glit.runtime.process_state import without_bars
from glit.runtime.tables import Page, Table, figure, show
from glit.runtime.terminal import Console
from tools.measure.console import say
from tools.measure.gpu.bench import SCALES, Bench

PARTS: Mapping[str, float] = {
    "models.products": 20,
    "flism.measure": 50,
    "detectors.yolos": 70,
    "models.crops": 30,
    "training.measure": 150,
    "captions.measure": 70,
    "detectors.others": 40,
    "models.sam": 60,
    "builds.measure": 40,
}
"""Functions in modules of this folder that yield rows, by their worth, and after how many seconds
each is ended."""
MOST_S = 540
"""All parts together, unless --most says less: what is begun later has less time, or none."""


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
    done: list[dict[str, Any]] = []
    report = {
        "machine": describe_machine(device), "versions": versions(), "scale": scale,
        "device": device, "parts": done,
    }  # fmt: skip
    started = time.monotonic()
    for name, own_s in (parts or PARTS).items():
        left_s = max(0.0, min(own_s, most_s - (time.monotonic() - started)))
        progress(f"{name} (at most {left_s:.0f} s)")
        output, log = folder / f"{name}.json", folder / f"{name}.log"
        for path in (output, log):
            path.unlink(missing_ok=True)
        words = ["tools.measure.gpu", "--part", name, scale, device, str(output)]
        try:
            ended = run_command(words, log, most_s=left_s)
        except KeyboardInterrupt as error:
            raise StoppedError(f"stopped; what was measured is in {folder}") from error
        how = {"seconds": ended.seconds, "failure": ended.failure}
        done.append({"name": name, **recorded(output), **how})
        progress(f"{name}: {ended.failure or 'done'} ({ended.seconds:.0f} s)")
        write_report(folder, "gpu", report, page(report))
    return report


def run_part(name: str, scale: str, device: Any, output: str) -> None:
    """Run a part in this process; its figures are in ``output``, also those before it fails.

    Args:
        name: of the module and the function in it.
        scale: ``full`` or ``tiny``.
        device: ``cuda`` or ``cpu``.
        output: JSON file.
    """
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="glit-gpu-") as folder, without_bars():
        bench = Bench(scale=SCALES[scale], device=device, scratch=Path(folder))
        module, _, function = name.partition(".")
        measure = getattr(importlib.import_module(f"tools.measure.gpu.{module}"), function)
        record(measure(bench), Path(output))


HEADINGS = ("what", "measured", "limit", "ratio", "first bottleneck")


def cells(row: Row) -> tuple[str, str, str, str, str]:
    """A line of the table."""
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


def main() -> None:
    """Measure; or, with --part, be one part."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.measure.gpu", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, help="the folder for the results")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes, on any machine")
    parser.add_argument("--most", type=float, default=MOST_S, help="seconds of all parts together")
    parser.add_argument("--part", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        run_part(*given.part)
        return
    if given.output is None:
        parser.error("-o OUT: the folder for the results")
    where = pick_device(given.device).type
    if where != "cuda" and not given.tiny:
        parser.error("this machine has no GPU; add --tiny to see the parts run")
    given.output.mkdir(parents=True, exist_ok=True)
    scale = "tiny" if given.tiny else "full"
    folder = given.output.resolve()
    report = run(folder, device=where, scale=scale, progress=say, most_s=given.most)
    show(page(report), Console(highlight=False))
    say(f"wrote gpu.json and gpu.md in {given.output}")
    sys.exit(any(part["failure"] for part in report["parts"]))


if __name__ == "__main__":
    main()
