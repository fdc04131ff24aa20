"""Create a run's Accelerator: device, precision, processes, trackers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from glit.errors import RecipeError, UserError, closest
from glit.models.device import best_device
from glit.runtime.ranks import num_launched, num_on_this_machine, rank
from glit.training.config import TrainConfig
from glit.training.gather import num_ranks
from glit.training.setup import mixed_precision

if TYPE_CHECKING:
    from accelerate import Accelerator


def open_accelerator(config: TrainConfig, run: Path) -> tuple[Accelerator, TrainConfig]:
    """Create this process's Accelerator; return it and the configuration with its precision.

    Raises:
        UserError: this device or this way of sharing the work cannot be.
    """
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState
    from accelerate.utils import (
        DistributedDataParallelKwargs,
        parse_flag_from_env,
        set_seed,
    )

    for name in ("FSDP", "DEEPSPEED", "MEGATRON_LM"):
        if parse_flag_from_env(f"ACCELERATE_USE_{name}"):
            raise UserError(
                f"ACCELERATE_USE_{name}: checkpoints would hold one part of the weights that it "
                "shards; start with torchrun or another setting of accelerate, and where memory is "
                "short set train.micro_batch_size or train.gradient_checkpointing"
            )
    _check_trackers(config.trackers)
    AcceleratorState._reset_state()  # or a second run in this process keeps the first's precision
    num_processes = num_launched()
    device = "cpu" if parse_flag_from_env("ACCELERATE_USE_CPU") else best_device()
    _check_devices(device)
    config = replace(config, precision=mixed_precision(config.precision, device))
    accelerator = Accelerator(
        cpu=device == "cpu",  # or it believes itself alone among processes without a GPU
        mixed_precision=config.precision,
        log_with=list(config.trackers) or None,
        project_dir=str(run),
        # no buffer of CLIP ever changes, so none is sent around before every step
        kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)],
    )
    _check_same_processes(accelerator, num_processes)
    if config.precision == "fp16" and accelerator.scaler is None:
        raise UserError("train.precision = 'fp16': wants a GPU; use 'bf16' or 'no'")
    set_seed(config.seed)
    return accelerator, config


def _check_devices(device: str) -> None:
    """Refuse more processes than this machine has devices of the kind.

    Raises:
        UserError: names both numbers.
    """
    import torch

    devices = {"cuda": torch.cuda.device_count, "mps": lambda: 1}.get(device)
    if devices is not None and num_on_this_machine() > devices():
        raise UserError(
            f"{num_on_this_machine()} processes on this machine, which has {devices()} of the "
            f"device {device!r}: start as many as there are, or set ACCELERATE_USE_CPU=true"
        )


def _check_same_processes(accelerator: Accelerator, num_processes: int) -> None:
    """Refuse a run whose launcher, accelerate and torch count its processes differently: each would
    take every sample, and every sample would meet its own copies as negatives.

    Raises:
        UserError: names the three numbers.
    """
    counts = {
        "the launcher": num_processes,
        "accelerate": accelerator.num_processes,
        "torch.distributed": num_ranks(),
    }
    if len(set(counts.values())) > 1 or accelerator.process_index != rank():
        said = ", ".join(f"{who} {number}" for who, number in counts.items())
        raise UserError(
            f"processes of this run: {said}; rank {rank()} and {accelerator.process_index}: they "
            "must agree; start with torchrun, without other settings of accelerate"
        )


def _check_trackers(names: Sequence[str]) -> None:
    """Refuse a tracker that accelerate does not know or would silently leave out.

    Raises:
        RecipeError: names it.
    """
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers
    from accelerate.utils import LoggerType

    known = [str(name) for name in LOGGER_TYPE_TO_CLASS]
    published = {each.value for each in LoggerType}
    installed = {each.value for each in get_available_trackers()}
    for name in names:
        if name not in (*known, "all"):
            raise RecipeError(f"train.trackers: unknown tracker {name!r}; {closest(name, known)}")
        if name in published - installed - {"all"}:
            raise RecipeError(
                f"train.trackers: {name!r} is not installed; install the package of that name, or "
                "leave it out"
            )
