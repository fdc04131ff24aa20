"""Log a run's metrics: one JSON line per report, and accelerate's trackers."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import torch

from glit.errors import InputError, first_line
from glit.storage.store import Store
from glit.training.config import TrainConfig
from glit.training.run_file import settings

METRICS = "metrics.jsonl"
"""In the run's folder; the last step of a finished run is in it."""


VALIDATION = "validation_score"
"""In the lines of measurements, which have neither loss nor rates."""


class JsonLines:
    """A file of JSON lines that is appended to."""

    def __init__(self, path: Path, *, keep_until_step: int) -> None:
        """Continue a file without the lines after ``keep_until_step`` (lost in a crash).

        Raises:
            InputError: the file cannot be read as text.
        """
        self.path = path
        kept = [line for line in _lines(path) if _step_of(line) <= keep_until_step]
        Store(path.parent).write(path.name, "".join(line + "\n" for line in kept).encode())
        self.validated = {json.loads(line)["step"] for line in kept if VALIDATION in line}
        """Steps whose measurement is in the file."""
        losses = [found["loss"] for line in kept if "loss" in (found := json.loads(line))]
        self.last_loss: float = losses[-1] if losses else math.nan
        """The newest that was in the file when it was opened."""

    def write(self, values: dict[str, float | int | str]) -> None:
        """Append one line."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")


def _lines(path: Path) -> list[str]:
    """The lines of a log; none where there is no log yet."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: the run's log cannot be read ({first_line(error)}); fix it or move it away, "
            "then go on with --resume"
        ) from error


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")


def flat_config(config: TrainConfig) -> dict[str, str | int | float | bool]:
    """The configuration as plain values, for trackers."""
    return {
        key: value if isinstance(value, str | int | float | bool) else str(value)
        for key, value in settings(config).items()
    }


def numbers(scalars: Sequence[torch.Tensor | float]) -> list[float]:
    """The values of one or more tensors of one element each, or numbers, in one copy from the
    device of the first."""
    tensors = [torch.as_tensor(each).detach() for each in scalars]
    device = tensors[0].device
    return torch.stack([each.float().reshape(()).to(device) for each in tensors]).tolist()
