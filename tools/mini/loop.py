"""The training loop of all mini models: fixed steps, one seed, resumable to the bit.

Data of step ``i`` come from ``(seed, i)`` alone, so a run that was stopped and resumed sees what
an unbroken one would have seen.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from glit.models.device import has_bfloat16
from tools.mini.save import replaced

M = TypeVar("M", bound=nn.Module)
LossAndMetrics = tuple[Tensor, dict[str, float]]

_AVERAGE_DECAY = 0.998
_LOG_EVERY = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """How long and how fast."""

    steps: int
    lr: float
    """Peak learning rate of AdamW."""
    warmup: int = 200
    """Steps of linear warm-up."""
    decay_share: float = 0.4
    """Share of the steps, at the end, over which the learning rate falls linearly to zero."""
    weight_decay: float = 0.02
    seed: int = 0
    checkpoint_every: int = 250
    """Steps between checkpoints; each is an export too."""


def lr_factor(step: int, settings: TrainSettings) -> float:
    """Warm-up, plateau, linear decay; the peak is 1."""
    start = settings.steps * (1 - settings.decay_share)
    rising = min(1.0, (step + 1) / settings.warmup)
    falling = min(1.0, (settings.steps - step) / (settings.steps - start))
    return rising * max(0.0, falling)


class Training(nn.Module, ABC):
    """A mini model with what only its training needs."""

    @abstractmethod
    def loss(self, rng: np.random.Generator, step: int) -> LossAndMetrics:
        """The loss of one step, on data drawn from its generator."""

    @abstractmethod
    def export(self, folder: Path) -> None:
        """Write the model's files."""


def run_trainer(
    parser: argparse.ArgumentParser,
    defaults: TrainSettings,
    make: Callable[[argparse.Namespace], Training],
) -> None:
    """A trainer's command line: train and export to ``RUN/export``; run it again to resume.

    :param parser: with the options of this trainer alone
    :param make: called with the command line's words, under the seed
    """
    parser.add_argument("--steps", type=int, default=defaults.steps)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--run", type=Path, required=True, help="folder for checkpoints and export")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    settings = replace(defaults, steps=arguments.steps, seed=arguments.seed)

    def export(training: Training) -> None:
        with replaced(arguments.run / "export") as folder:
            training.export(folder)

    train(
        make(arguments), lambda model, *where: model.loss(*where), settings, arguments.run, export
    )


def train(
    module: M,
    loss_of_step: Callable[[M, np.random.Generator, int], LossAndMetrics],
    settings: TrainSettings,
    folder: Path,
    export: Callable[[M], None],
) -> None:
    """Train ``module`` and export the running average of its weights.

    Matrices are multiplied in bfloat16 where the processor has instructions for it.

    :param loss_of_step: takes the module, the step's own generator and the step
    :param export: called at every checkpoint and at the end with the averaged module
    """
    folder.mkdir(parents=True, exist_ok=True)
    matrices = [p for p in module.parameters() if p.requires_grad and p.ndim > 1]
    vectors = [p for p in module.parameters() if p.requires_grad and p.ndim <= 1]
    optimiser = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": settings.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=settings.lr,
        betas=(0.9, 0.98),
        foreach=True,
    )
    trained: list[Tensor] = [*matrices, *vectors]
    average = [p.detach().clone() for p in trained]
    first = _resume(module, optimiser, average, folder / "checkpoint.pt")
    started = time.time()
    totals: dict[str, list[float]] = {}
    module.train()
    for step in range(first, settings.steps):
        rng = np.random.default_rng([settings.seed, step])
        torch.manual_seed(settings.seed * 1_000_003 + step)
        for group in optimiser.param_groups:
            group["lr"] = settings.lr * lr_factor(step, settings)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=has_bfloat16("cpu")):
            loss, metrics = loss_of_step(module, rng, step)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimiser.step()
        decay = min(_AVERAGE_DECAY, (step + 1) / (step + 10))
        get_ema_multi_avg_fn(decay)(average, [p.detach() for p in trained], step)
        for name, value in {"loss": float(loss.detach()), **metrics}.items():
            totals.setdefault(name, []).append(value)
        done = step + 1
        if done % _LOG_EVERY == 0:
            _log(folder, done, (time.time() - started) / (done - first), totals)
            totals = {}
        if done % settings.checkpoint_every == 0 or done == settings.steps:
            _save(module, optimiser, average, done, folder / "checkpoint.pt")
            with averaged(trained, average):
                module.eval()
                export(module)
                module.train()


@contextlib.contextmanager
def averaged(parameters: list[Tensor], average: list[Tensor]) -> Iterator[None]:
    """Inside the block the parameters hold their running averages."""
    kept = [p.detach().clone() for p in parameters]
    _copy(average, parameters)
    try:
        yield
    finally:
        _copy(kept, parameters)


@torch.no_grad()
def _copy(values: list[Tensor], parameters: list[Tensor]) -> None:
    torch._foreach_copy_(parameters, values)


def _resume(
    module: nn.Module, optimiser: torch.optim.Optimizer, average: list[Tensor], path: Path
) -> int:
    """Load the checkpoint if there is one; the number of steps already done."""
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    module.load_state_dict(state["module"])
    optimiser.load_state_dict(state["optimiser"])
    for kept, value in zip(average, state["average"], strict=True):
        kept.copy_(value)
    return int(state["step"])


def _save(
    module: nn.Module,
    optimiser: torch.optim.Optimizer,
    average: list[Tensor],
    step: int,
    path: Path,
) -> None:
    partial = path.with_suffix(".part")
    state = {
        "module": module.state_dict(),
        "optimiser": optimiser.state_dict(),
        "average": average,
        "step": step,
    }
    torch.save(state, partial)
    os.replace(partial, path)


def _log(folder: Path, step: int, seconds: float, totals: dict[str, list[float]]) -> None:
    line = {"step": step, "s_per_step": round(seconds, 3), "time": time.strftime("%H:%M:%S")}
    line |= {name: round(float(np.mean(values)), 4) for name, values in totals.items()}
    with (folder / "log.jsonl").open("a") as log:
        log.write(json.dumps(line) + "\n")
    print(json.dumps(line), flush=True)
