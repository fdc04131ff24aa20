"""A run's position in training, stored in a checkpoint's ``trainer/state.json``."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from glit.errors import InputError

GO_BACK = "so the run cannot be resumed from here; start a new run folder"
"""The end of a message about a checkpoint that cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The position of a run: its next batch, and its results so far."""

    step: int = 0
    """Optimiser steps done."""

    epoch: int = 0
    """Epoch of the next batch, from 0."""

    batch: int = 0
    """Number of the next batch in its epoch."""

    best: float | None = None
    """Score of the best checkpoint so far (higher is better); None before the first."""

    best_step: int | None = None
    """Steps of the best checkpoint; None before the first."""

    loss_sum: float = 0.0
    """Losses of this epoch's batches so far, summed."""


def read_position(checkpoint: Path) -> Position:
    """Read the position of a checkpoint.

    Raises InputError for a folder that is not one of our checkpoints.
    """
    path = checkpoint / "trainer" / "state.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        _check_numbers(found)
        return Position(**found)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"{checkpoint}: no usable trainer/state.json ({error}), {GO_BACK}"
        ) from error


def _check_numbers(found: Any) -> None:
    if not isinstance(found, dict):
        raise TypeError(f"found {found!r}, want an object")
    unknown = set(found) - {field.name for field in fields(Position)}
    if unknown or "step" not in found:
        raise ValueError(f"unknown key {min(unknown)!r}" if unknown else "no 'step'")
    for name in ("step", "epoch", "batch", "best_step"):
        value = found.get(name, 0)
        absent = value is None and name == "best_step"
        if not absent and (type(value) is not int or value < 0):
            raise ValueError(f"{name} = {value!r}, want a whole number of 0 or more")
    for name in ("best", "loss_sum"):
        value = found.get(name, 0.0)
        if value is None and name == "best":
            continue
        if not isinstance(value, float | int) or not math.isfinite(value):
            raise ValueError(f"{name} = {value!r}, want a number")
