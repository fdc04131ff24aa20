"""What a step of every objective costs: ``python -m tools.measure.step_cost -o OUT``.

Steps on the same samples, alternated with those of ``clip`` in one process, of a CLIP with random
weights; then the memory that a step of each adds at its peak, in a process each. Prints JSON and
writes it to ``OUT/step-cost.json``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from glit.bench.harness import in_own_process, write_json
from glit.bench.machine import peak_mb, resident_mb
from glit.bench.random_clip import TINY, VIT_B_16, ClipShape
from glit.bench.random_dataset import DatasetShape
from glit.training.config import TrainConfig
from glit.training.objectives import OBJECTIVES
from glit.training.setup import prepare
from glit.training.step import run_step
from tools.measure.train_setup import (
    clip_folder,
    dataset_folder,
    planned_samples,
    still_optimizer,
    timed,
    with_pixels,
)

SHAPES = {"vit-b-16": VIT_B_16, "tiny": TINY}
CAPTION = {"num_sentences": 8, "words": 19}


def main() -> None:
    """Measure some objectives."""
    parser = argparse.ArgumentParser(prog="python -m tools.measure.step_cost", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/bench"))
    parser.add_argument("--model", choices=SHAPES, default="vit-b-16")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--objectives", nargs="+", choices=OBJECTIVES, default=list(OBJECTIVES))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as scratch:
        setting = _Setting(SHAPES[arguments.model], arguments.batch, Path(scratch))
        result = measured(setting, arguments)
    print(json.dumps(result, indent=2))
    write_json(arguments.output / "step-cost.json", result)


def measured(setting: _Setting, arguments: argparse.Namespace) -> dict[str, Any]:
    """Times and memory of every objective, and how they stand to those of ``clip``."""
    baseline, _ = setting.step_of("clip")
    baseline()  # warms up
    memory_of_clip = in_own_process(memory_of, "clip", arguments)
    found = {}
    for name in arguments.objectives:
        step, added = setting.step_of(name)
        step()
        times = [(timed(baseline).cpu_s, timed(step).cpu_s) for _ in range(arguments.repeats)]
        memory = in_own_process(memory_of, name, arguments)
        found[name] = {
            "cpu_s": statistics.median(own for _, own in times),
            "times_clip": statistics.median(own / clip for clip, own in times),
            "peak_mb": memory,
            "memory_times_clip": memory / memory_of_clip,
            "parameters_added": added,
        }
        print(f"{name}: {found[name]['times_clip']:.2f} times clip", file=sys.stderr)
    return {
        "model": arguments.model,
        "weights": "random",
        "batch": arguments.batch,
        "threads": arguments.threads,
        "objectives": found,
    }


def memory_of(name: str, arguments: argparse.Namespace) -> float:
    """Peak memory of a step, MB, that it adds to what this process had before."""
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as scratch:
        setting = _Setting(SHAPES[arguments.model], arguments.batch, Path(scratch))
        step, before = setting.step_of(name)[0], resident_mb()
        step()
    return peak_mb() - before


class _Setting:
    """A model's folder and a dataset; steps of objectives on it."""

    def __init__(self, shape: ClipShape, batch_size: int, scratch: Path) -> None:
        self.clip = clip_folder(shape, scratch)
        data = DatasetShape(num_samples=batch_size, width=320, height=240, **CAPTION)
        self.dataset = dataset_folder(self.clip, scratch / "dataset", data)
        self.batch_size = batch_size

    def step_of(self, objective: str) -> tuple[Callable[[], None], int]:
        """A whole step at learning rate zero; and how many
        parameters the objective brings."""
        from accelerate import Accelerator

        config = TrainConfig(
            model=str(self.clip), objective=objective, batch_size=self.batch_size, num_workers=0
        )
        made = prepare(config, str(self.dataset))
        optimizer, accelerator = still_optimizer(made, config), Accelerator(cpu=True)
        batch = with_pixels(made, planned_samples(made.loader))
        made.model.train()

        def step() -> None:
            run_step([batch], model=made.model, objective=made.objective, accelerator=accelerator)
            optimizer.step()
            optimizer.zero_grad()

        module = made.model.module
        return step, sum(p.numel() for p in module.parameters()) if module is not None else 0


if __name__ == "__main__":
    main()
