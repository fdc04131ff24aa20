"""Seconds of some work, and rows as they are measured: printed and written."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from glit.bench.harness import Row, record


def printed(rows: Iterator[Row], path: Path) -> None:
    """Print each row and write it to a JSON file."""

    def each() -> Iterator[Row]:
        for row in rows:
            print(json.dumps(row), flush=True)
            yield row

    record(each(), path)


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the wall and of the processor that some work takes."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu
