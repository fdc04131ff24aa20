"""Losses kept on the device until they are logged."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import torch

from glit.errors import RunError
from glit.training.checkpoint import Checkpoints, Position
from glit.training.log import numbers

_MOST = 256


class Unseen:
    """Numbers that stay on the device until they are logged or saved.

    Python would wait for the device at every step otherwise. Steps may be taken meanwhile with
    numbers that are not finite; they are never logged or saved, for both look first.
    """

    def __init__(self, run: Path, num_batches: int) -> None:
        self._checkpoints, self._num_batches = Checkpoints(run), num_batches
        self._unseen: list[tuple[str, torch.Tensor, Position]] = []
        self.last_loss = math.nan
        """The newest that was looked at."""

    @property
    def too_many(self) -> bool:
        """True if the numbers must be fetched now, if log lines are far apart."""
        return len(self._unseen) >= _MOST

    def add(self, what: str, value: torch.Tensor, position: Position) -> None:
        """Keep a ``loss`` or a ``gradient`` norm of the batch at a position."""
        self._unseen.append((what, value, position))

    def look(self, position: Position) -> Position:
        """Fetch the losses since the last call in one copy; return them by position.

        Raises:
            RunError: one is not finite; names its step and batch, and the last good checkpoint.
        """
        unseen, self._unseen = self._unseen, []
        if not unseen:
            return position
        values = numbers([value for _, value, _ in unseen])
        for (what, _, place), value in zip(unseen, values, strict=True):
            if not math.isfinite(value):
                raise self._not_finite(what, value, place)
            if what == "loss":
                self.last_loss = value
                position = replace(position, loss_sum=position.loss_sum + value)
        return position

    def _not_finite(self, what: str, value: float, position: Position) -> RunError:
        last = self._checkpoints.last()
        kept = f"the last good checkpoint is {last}" if last else "no checkpoint was written yet"
        return RunError(
            f"training stopped: the {what} became {value} at step {position.step + 1} "
            f"(epoch {position.epoch + 1}, batch {position.batch + 1} of {self._num_batches}); "
            f"{kept}: lower train.lr or set train.max_grad_norm, then go on with --resume"
        )
