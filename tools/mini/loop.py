"""The training loop all four trainers share: fixed steps, one seed, resumable to the bit.

Data of step ``i`` come from ``(seed, i)`` alone, so a run that was stopped and resumed sees what
an unbroken one would have seen.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from glit.backends.device import has_bfloat16

M = TypeVar("M", bound=nn.Module)

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


def trainer_parser(defaults: TrainSettings, description: str) -> argparse.ArgumentParser:
    """The command line of a trainer: ``--steps``, ``--seed`` and the run folder ``--run``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=defaults.steps)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--run", type=Path, required=True, help="folder for checkpoints and export")
    return parser


def chosen(defaults: TrainSettings, arguments: argparse.Namespace) -> TrainSettings:
    """The defaults with what the command line changes."""
    return replace(defaults, steps=arguments.steps, seed=arguments.seed)


def train(
    module: M,
    loss_of_step: Callable[[M, np.random.Generator, int], tuple[Tensor, dict[str, float]]],
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
    trained = matrices + vectors
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
            kept = totals.setdefault(name, [])
            kept.append(value)
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


class averaged:
    """Inside the block the parameters hold their running averages."""

    def __init__(self, parameters: list[nn.Parameter], average: list[Tensor]) -> None:
        self._parameters, self._average = parameters, average
        self._kept: list[Tensor] = []

    def __enter__(self) -> None:
        self._kept = [p.detach().clone() for p in self._parameters]
        self._copy(self._average)

    def __exit__(self, *unused: object) -> None:
        self._copy(self._kept)

    def _copy(self, values: list[Tensor]) -> None:
        with torch.no_grad():
            for parameter, value in zip(self._parameters, values, strict=True):
                parameter.copy_(value)


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
