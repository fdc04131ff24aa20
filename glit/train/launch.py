"""Start a training run on several processes with Ray Train.

``torchrun`` needs nothing from us: it sets the environment, and every process calls
``glit.train.loop.train``. Ray Train sets the same environment on the workers of a cluster.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glit.errors import GlitError, MissingExtraError, RunError
from glit.train.checkpoint import Checkpoints, read_position
from glit.train.config import TrainConfig
from glit.train.loop import TrainResult, train


def train_on_ray(
    config: TrainConfig, dataset: str, run: Path, *, num_workers: int, resume: bool = False
) -> TrainResult:
    """Fine-tune on ``num_workers`` processes of the Ray cluster (a local one if there is none).

    The dataset and the run's folder must be reachable from all of them under the same name.

    Raises:
        MissingExtraError: Ray is not installed.
        RunError: a worker failed; the last checkpoint stays.
    """
    try:
        import ray
        import ray.train.torch
    except ImportError as error:
        raise MissingExtraError("ray", extra="ray", needed_for="--ray-workers") from error
    import torch

    use_gpu = torch.cuda.is_available()
    trainer = ray.train.torch.TorchTrainer(
        _worker,
        train_loop_config={
            "config": config,
            "dataset": dataset if "://" in dataset else str(Path(dataset).resolve()),
            "run": str(run.resolve()),
            "resume": resume,
        },
        torch_config=ray.train.torch.TorchConfig(backend="nccl" if use_gpu else "gloo"),
        scaling_config=ray.train.ScalingConfig(num_workers=num_workers, use_gpu=use_gpu),
        run_config=ray.train.RunConfig(
            name="ray",
            storage_path=str(run.resolve()),
        ),
    )
    try:
        trainer.fit()
    except ray.train.TrainingFailedError as error:
        raise RunError(
            f"{run}: a worker failed ({_innermost(error)}); what is on disk is kept, go on with "
            "--resume"
        ) from error
    last = Checkpoints(run).last()
    if last is None:
        raise RunError(f"{run}: the workers ended without a checkpoint; see the run's ray folder")
    position = read_position(last)
    return TrainResult(
        step=position.step,
        total_steps=position.step,
        loss=float("nan"),
        checkpoint=last,
        interrupted=False,
    )


def _worker(settings: dict[str, Any]) -> None:
    """One process of the run; Ray Train has made the process group."""
    train(
        settings["config"],
        settings["dataset"],
        Path(settings["run"]),
        resume=settings["resume"],
    )


def _innermost(error: BaseException) -> str:
    """The one line that says what went wrong in the worker."""
    inner: BaseException = error
    while inner.__cause__ is not None:
        inner = inner.__cause__
    for failure in getattr(error, "worker_failures", {}).values():
        inner = failure
    if isinstance(inner, GlitError):
        return str(inner)
    lines = str(inner).strip().splitlines()
    return lines[-1] if lines else type(inner).__name__
