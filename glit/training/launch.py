"""Start a training run on several processes with Ray Train.

``torchrun`` needs nothing from us: it sets the environment, and every process calls
``glit.training.loop.train``. Ray Train sets the same environment on the workers of a cluster.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from glit.clip.position import read_position
from glit.errors import RunError
from glit.models.device import best_device
from glit.recipes.extras import require
from glit.recipes.plugins import loaded
from glit.training.checkpoint import Checkpoints
from glit.training.config import TrainConfig
from glit.training.log import METRICS
from glit.training.loop import train
from glit.training.result import TrainResult
from glit.training.run_file import PATHS, anywhere
from glit.training.validation import OpenMeasure


def train_on_ray(
    config: TrainConfig,
    dataset: str,
    run: Path,
    *,
    num_workers: int,
    resume: bool = False,
    open_measure: OpenMeasure | None = None,
) -> TrainResult:
    """Fine-tune on ``num_workers`` processes of the Ray cluster (a local one if there is none).

    The dataset and the run's folder must be reachable from all of them under the same name.

    Raises:
        MissingExtraError: Ray is not installed.
        RunError: a worker failed; the last checkpoint stays.
    """
    require("ray", needed_for="--ray-workers")
    from glit.executors.ray_train import run_processes

    paths = {name: anywhere(getattr(config, name)) for name in PATHS}
    config = replace(config, **paths)
    settings = {
        "plugins": loaded(),  # first, so that a worker has them before it reads the rest
        "config": config,
        "dataset": anywhere(dataset),
        "run": run.resolve(),
        "resume": resume,
        "open_measure": open_measure,
    }
    try:
        run_processes(
            _worker,
            settings,
            num_workers=num_workers,
            use_gpu=best_device() == "cuda",
            folder=str(run.resolve()),
        )
    except RunError as error:
        raise RunError(
            f"{run}: a worker failed ({error}); what is on disk is kept, go on with --resume"
        ) from error
    last = Checkpoints(run).last()
    if last is None:
        raise RunError(f"{run}: the workers ended without a checkpoint; see the run's ray folder")
    step = read_position(last).step
    lines = map(json.loads, (run / METRICS).read_text(encoding="utf-8").splitlines())
    losses = [line for line in lines if "loss" in line]
    logged = losses[-1] if losses else {"total_steps": step, "loss": float("nan")}
    return TrainResult(
        step=step,
        total_steps=logged["total_steps"],
        loss=logged["loss"],
        checkpoint=last,
        interrupted=step < logged["total_steps"],
    )


def _worker(settings: dict[str, Any]) -> None:
    """Run one process of the run; Ray Train has made the process group."""
    train(**{key: value for key, value in settings.items() if key != "plugins"})
