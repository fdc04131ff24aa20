"""A run's position in training, stored in a checkpoint's ``trainer/state.json``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from glit.errors import InputError
from glit.plain import from_plain, limited

GO_BACK = "so the run cannot be resumed from here; start a new run folder"
"""The end of a message about a checkpoint that cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The position of a run: its next batch, and its results so far."""

    step: int = limited(least=0)
    """Optimiser steps done."""

    epoch: int = limited(0, least=0)
    """Epoch of the next batch, from 0."""

    batch: int = limited(0, least=0)
    """Number of the next batch in its epoch."""

    best: float | None = limited(None)
    """Score of the best checkpoint so far (higher is better); None before the first."""

    best_step: int | None = limited(None, least=0)
    """Steps of the best checkpoint; None before the first."""

    loss_sum: float = limited(0.0)
    """Losses of this epoch's batches so far, summed."""


def read_position(checkpoint: Path) -> Position:
    """Read the position of a checkpoint.

    Raises InputError for a folder that is not one of our checkpoints.
    """
    path = checkpoint / "trainer" / "state.json"
    try:
        return from_plain(Position, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{checkpoint}: no usable trainer/state.json ({error}), {GO_BACK}"
        ) from error
