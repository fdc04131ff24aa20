"""A function on several processes with Ray Train, which makes the process group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ray.train
import ray.train.torch

from glit.errors import GlitError, RunError
from glit.storage.remote_settings import set_by_program, set_here


def run_processes(
    work: Callable[[dict[str, Any]], None],
    settings: dict[str, Any],
    *,
    num_workers: int,
    use_gpu: bool,
    folder: str,
) -> None:
    """Call ``work(settings)`` in every process of a group (a local cluster if there is none).

    Args:
        work: what each process does.
        settings: picklable.
        num_workers: processes.
        use_gpu: one GPU each.
        folder: where Ray keeps its own records.

    Raises:
        RunError: a process failed; names the innermost reason.
    """
    stores = set_by_program()

    def prepared(settings: dict[str, Any]) -> None:
        set_here(stores)
        work(settings)

    trainer = ray.train.torch.TorchTrainer(
        prepared,
        train_loop_config=settings,
        torch_config=ray.train.torch.TorchConfig(backend="nccl" if use_gpu else "gloo"),
        scaling_config=ray.train.ScalingConfig(num_workers=num_workers, use_gpu=use_gpu),
        run_config=ray.train.RunConfig(name="ray", storage_path=folder),
    )
    try:
        trainer.fit()
    except ray.train.TrainingFailedError as error:
        raise RunError(_innermost(error)) from error


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
