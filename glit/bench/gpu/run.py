"""The parts in turn, each with its time, whatever becomes of the others."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from glit.bench.gpu.row import Row
from glit.bench.lism_flism.machine import describe_machine, versions
from glit.errors import StoppedError
from glit.storage.store import to_json

MOST_S = 540.0
"""Seconds of all parts together."""
_LEAST_S = 5.0
"""A part is not begun with less time than this."""
_TAIL = 400
"""Characters of a failed part's last words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A module of this folder with a function ``measure``."""

    name: str
    most_s: float
    """After so many seconds it is ended."""


PARTS: tuple[Part, ...] = (
    Part(name="matrix", most_s=40),
    Part(name="mini", most_s=60),
    Part(name="flism", most_s=80),
    Part(name="training", most_s=110),
    Part(name="lism", most_s=100),
    Part(name="several", most_s=60),
    Part(name="columns", most_s=100),
    Part(name="captions", most_s=200),
)
"""In the order of work: what others need first, then by worth. Few take all of their time;
vLLM alone may start for a minute and more, so the last has what the others leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartReport:
    """What a part found, and how it ended."""

    name: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    details: dict[str, Any]
    seconds: float
    failure: str = ""
    """In one line; empty where all went well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All parts, and what they ran on."""

    machine: dict[str, str]
    versions: dict[str, str]
    scale: str
    device: str
    parts: tuple[PartReport, ...]

    def as_dict(self) -> dict[str, Any]:
        """What ``gpu.json`` holds."""
        return asdict(self)


def run(
    folder: Path,
    *,
    device: str,
    scale: str,
    progress: Callable[[str], None],
    parts: Sequence[Part] | None = None,
    most_s: float = MOST_S,
) -> Report:
    """Measure all parts.

    Args:
        folder: takes ``PART.json`` and ``PART.log`` of every part, and ``gpu.json`` after each.
        device: ``cuda`` or ``cpu``.
        scale: ``full`` or ``tiny``.
        progress: told what is going on.
        parts: which; None for all.
        most_s: seconds of all parts together.

    Raises:
        StoppedError: Ctrl-C; what was measured is in the folder.
    """
    started = time.monotonic()
    reports: list[PartReport] = []
    machine, packages = describe_machine(device), versions()

    def report() -> Report:
        return Report(
            machine=machine,
            versions=packages,
            scale=scale,
            device=device,
            parts=tuple(reports),
        )

    for part in PARTS if parts is None else parts:
        left = most_s - (time.monotonic() - started)
        progress(f"{part.name} (at most {min(part.most_s, max(left, 0)):.0f} s)")
        rates = next((each.details.get("rates", {}) for each in reports), {})
        try:
            reports.append(_one(part, folder, device, scale, rates, left))
        except KeyboardInterrupt as error:
            raise StoppedError(f"stopped; what was measured is in {folder}") from error
        last = reports[-1]
        progress(f"{part.name}: {last.failure or 'done'} ({last.seconds:.0f} s)")
        (folder / "gpu.json").write_bytes(to_json(report().as_dict()))
    return report()


def _one(
    part: Part, folder: Path, device: str, scale: str, rates: dict[str, float], left: float
) -> PartReport:
    output, log = folder / f"{part.name}.json", folder / f"{part.name}.log"
    output.unlink(missing_ok=True)
    if left < _LEAST_S:
        return _report(part, output, 0.0, "not begun: no time was left")
    started = time.monotonic()
    command = [sys.executable, "-m", "glit.bench.gpu.part", part.name, scale, device]
    command += [str(output), json.dumps(rates)]
    with log.open("wb") as words:
        process = subprocess.Popen(
            command, stdout=words, stderr=words, stdin=subprocess.DEVNULL, start_new_session=True
        )
        try:
            code = process.wait(min(part.most_s, left))
            failure = "" if code == 0 else _last_words(log, code)
        except subprocess.TimeoutExpired:
            failure = f"ended after {time.monotonic() - started:.0f} s, its time"
        finally:
            _end(process)
    return _report(part, output, time.monotonic() - started, failure)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a part and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_words(log: Path, code: int) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    said = next((line for line in reversed(lines) if line.strip()), "")
    return f"{how}: {said.strip()[:_TAIL]}" if said else how


def _report(part: Part, output: Path, seconds: float, failure: str) -> PartReport:
    try:
        found = json.loads(output.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = {"rows": [], "notes": [], "details": {}}
    return PartReport(
        name=part.name,
        rows=tuple(Row(**row) for row in found["rows"]),
        notes=tuple(found["notes"]),
        details=found["details"],
        seconds=seconds,
        failure=failure,
    )
