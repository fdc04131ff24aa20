"""Resume from a checkpoint, after checking that it fits the run."""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

import torch

from glit.errors import InputError, first_line
from glit.models.clip.position import GO_BACK, Position
from glit.training.checkpoint import Checkpoints
from glit.training.config import TrainConfig

if TYPE_CHECKING:
    from accelerate.optimizer import AcceleratedOptimizer


def checkpoint_to_start_from(run: Path, *, resume: bool) -> Path | None:
    """The checkpoint to resume from, None for a fresh run.

    Raises InputError when there is none to resume, or when a fresh run would mix with an old one.
    """
    checkpoints = Checkpoints(run)
    checkpoints.put_back()
    last = checkpoints.last()
    if resume and last is None:
        raise InputError(f"{run}: no checkpoint to resume from; start the run without --resume")
    if not resume and last is not None:
        raise InputError(
            f"{run}: holds a run already (last checkpoint {last.name}); go on with --resume, or "
            "choose another folder with -o"
        )
    return last if resume else None


def check_position(
    checkpoint: Path, position: Position, config: TrainConfig, *, num_batches: int
) -> None:
    """Refuse a checkpoint's position that a run of so many batches an epoch cannot have reached.

    Raises:
        InputError: names what was found and what is wanted.
    """
    accumulation_steps = config.accumulation_steps
    an_epoch = -(-num_batches // accumulation_steps)
    wanted = position.epoch * an_epoch + position.batch // accumulation_steps
    if (
        position.batch >= num_batches
        or position.batch % accumulation_steps
        or position.step != wanted
        or checkpoint.name != f"step-{position.step:08d}"
        or (position.best_step or 0) > position.step
    ):
        raise InputError(
            f"{checkpoint}: trainer/state.json says step {position.step}, epoch {position.epoch}, "
            f"batch {position.batch}, which a run of {num_batches} batches an epoch does not come "
            f"to in the folder {checkpoint.name}, {GO_BACK}"
        )


def restore_optimizer(
    checkpoint: Path,
    optimizer: AcceleratedOptimizer,
    scaler: Any,
    *,
    step: int,
    fused: bool,
) -> None:
    """Restore the state of an optimiser, and of the loss scaler if there is one.

    Args:
        checkpoint: that holds it.
        optimizer: of the same parameters.
        scaler: of fp16's losses; None without.
        step: optimiser steps that the checkpoint says were done.
        fused: whether steps are fused here; the run may have begun on another device.

    Raises:
        InputError: the file is missing, damaged, or another run's.
    """
    path = checkpoint / "trainer" / "optimizer.pt"
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
        for group in found["optimizer"]["param_groups"]:
            group["fused"] = fused
        optimizer.load_state_dict(found["optimizer"])
        _check_state(optimizer, step, skips=scaler is not None)
        if scaler is not None and found["scaler"]:
            scaler.load_state_dict(found["scaler"])
    except (
        OSError, RuntimeError, EOFError, UnpicklingError,
        ValueError, TypeError, KeyError, IndexError, AttributeError,
    ) as error:  # fmt: skip
        raise InputError(
            f"{path}: missing, damaged or of another run ({first_line(error)}), {GO_BACK}"
        ) from error


def _check_state(optimizer: AcceleratedOptimizer, step: int, *, skips: bool) -> None:
    """Check that the optimiser's means fit the parameters' shapes and the run's age.

    A parameter that got no gradient has none; fp16 skips steps.
    """
    steps = [0]
    for parameter, state in optimizer.optimizer.state.items():
        steps.append(int(state["step"]))
        for name in ("exp_avg", "exp_avg_sq"):
            if state[name].shape != parameter.shape:
                raise ValueError(
                    f"{name} of shape {tuple(state[name].shape)}, want {tuple(parameter.shape)}"
                )
    if max(steps) > step or (max(steps) < step and not skips):
        raise ValueError(f"it has done {max(steps)} steps, want {step}")
