"""Parts of a measurement, each a function that yields rows, on the harness of ``glit bench``."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch

from glit.bench.harness import Row, record
from glit.bench.tables import spread

Part = Callable[[argparse.Namespace], Iterator[Row]]


def run_parts(parser: argparse.ArgumentParser, parts: Mapping[str, Part]) -> None:
    """Run the parts that the command line names; rows are printed, and written to OUT/PART.json."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("parts", nargs="*", metavar="PART", help="by default all")
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/bench"))
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(parts)
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))}; known: {', '.join(parts)}")
    if "threads" in arguments:
        torch.set_num_threads(arguments.threads)
    for part in arguments.parts or parts:
        record(_printed(parts[part](arguments)), arguments.output / f"{part}.json")


def _printed(rows: Iterator[Row]) -> Iterator[Row]:
    for row in rows:
        print(json.dumps(row), flush=True)
        yield row


def in_turn(ways: Mapping[str, Callable[[], object]], *, repeats: int, rounds: int = 1) -> Row:
    """Seconds of two ways of doing the same work, in turn in this process: medians, and the second
    way's over the first's, pair by pair.

    CPU time says the same as wall time on an idle machine, and stays fair on a busy one.

    Args:
        ways: two of them, by name.
        repeats: counted.
        rounds: before these, not counted.
    """
    for work in [*ways.values()] * rounds:
        work()
    times = [{name: seconds(work) for name, work in ways.items()} for _ in range(repeats)]
    first, second = ways
    found: Row = {}
    for number, clock in enumerate(("wall_s", "cpu_s")):
        found[clock] = {n: statistics.median(each[n][number] for each in times) for n in ways}
        ratios = [each[second][number] / each[first][number] for each in times]
        found[f"{second}_over_{first}_{clock.removesuffix('_s')}"] = spread(ratios)
    return found


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the wall and of the processor that some work takes."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu
