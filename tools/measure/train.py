"""How fast objectives train: ``python -m tools.measure.train -o OUT``.

A step of every objective, in turn with one of ``clip``, and the memory that each adds; CLIP
ViT-B/16 with random weights. ``tools.measure.gpu`` measures a step on a GPU.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import torch

from glit.bench.harness import Row, in_own_process
from glit.bench.machine import peak_mb
from glit.models.clip.random_clip import TINY, VIT_B_16, ClipShape
from glit.runtime.tables import spread
from glit.training.objectives import OBJECTIVES
from tools.measure.clock import printed, seconds
from tools.measure.gpu import training

SHAPES = {"vit-b-16": VIT_B_16, "tiny": TINY}
CLIP_VOCABULARY = 49_408
Step = Callable[[], float]
"""A whole step at learning rate zero, so that every call does the same; its loss."""

MEASURED = [name for name, kind in OBJECTIVES.items() if not kind().needs.num_negatives]
"""Those that need no false sentences."""


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m tools.measure.train", description=__doc__)
    parser.add_argument("--model", choices=SHAPES, default="vit-b-16")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--objectives", nargs="+", choices=OBJECTIVES, default=MEASURED)
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/bench"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    printed(measure(arguments), arguments.output / "objectives.json")


def measure(arguments: argparse.Namespace) -> Iterator[Row]:
    """Times and memory of every objective, and how they stand to those of ``clip``."""
    shape = SHAPES[arguments.model]
    memory_of_clip = in_own_process(_memory_of, "clip", arguments)
    with tempfile.TemporaryDirectory() as scratch:
        baseline, _ = step_of("clip", shape, arguments.batch, Path(scratch))
        for name in arguments.objectives:
            step, added = step_of(name, shape, arguments.batch, Path(scratch))
            found = in_turn({"clip": baseline, "own": step}, repeats=arguments.repeats)
            memory = in_own_process(_memory_of, name, arguments)
            yield {
                "objective": name, "weights": "random",
                **{key: getattr(arguments, key) for key in ("model", "batch", "threads")},
                **found, "peak_mb": memory, "memory_times_clip": memory / memory_of_clip,
                "parameters_added": added,
            }  # fmt: skip


def _memory_of(name: str, arguments: argparse.Namespace) -> float:
    """What a step adds to the resident memory of this process, at its peak, MB."""
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as scratch:
        step, _ = step_of(name, SHAPES[arguments.model], arguments.batch, Path(scratch))
        before = psutil.Process().memory_info().rss / 2**20
        step()
    return peak_mb() - before


def step_of(objective: str, shape: ClipShape, size: int, scratch: Path) -> tuple[Step, int]:
    """A step of an objective, and how many parameters it brings."""
    made = training.prepared(
        scratch, shape, num=size, size_px=256, rows=CLIP_VOCABULARY if shape is VIT_B_16 else 0,
        batch_size=size, num_workers=0, objective=objective,
    )  # fmt: skip
    [batch] = next(made.loader.epoch(0))
    module = made.model.module
    added = 0 if module is None else sum(each.numel() for each in module.parameters())
    step = training.step_of(made, "no", "cpu")
    return lambda: float(step(batch)["loss"]), added


def in_turn(ways: Mapping[str, Callable[[], object]], *, repeats: int) -> Row:
    """Seconds of two ways of doing the same work, in turn in this process: medians, and the second
    way's over the first's, pair by pair.

    CPU time says the same as wall time on an idle machine, and stays fair on a busy one.

    Args:
        ways: two of them, by name; each is done once before.
        repeats: counted.
    """
    for work in ways.values():
        work()
    times = [{name: seconds(work) for name, work in ways.items()} for _ in range(repeats)]
    first, second = ways
    found: Row = {}
    for number, clock in enumerate(("wall_s", "cpu_s")):
        found[clock] = {n: statistics.median(each[n][number] for each in times) for n in ways}
        ratios = [each[second][number] / each[first][number] for each in times]
        found[f"{second}_over_{first}_{clock.removesuffix('_s')}"] = spread(ratios)
    return found


if __name__ == "__main__":
    main()
