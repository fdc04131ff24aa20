"""The interface for measuring a model during training.

``glit.evaluate`` knows how to measure and imports this folder, so whoever starts a run hands it
over (``glit.evaluation.validation.open_validation``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from glit.training.config import TrainConfig
from glit.training.gather import num_ranks
from glit.training.setup import Ingredients

_LONG = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationScore:
    """A model's validation score."""

    metrics: Mapping[str, float]
    """For the log."""
    score: float
    """The score that the best checkpoint is chosen by; higher is better."""


Measure = Callable[[], ValidationScore]
"""Measures the model in training as it is now."""
OpenMeasure = Callable[[TrainConfig, Ingredients], Measure]
"""Opens what ``train.validation`` names, before anything is trained."""


class WaitForFirst:
    """Make all processes wait while the first one measures; every process must call it.

    The group that exchanges gradients would give up after some minutes.
    """

    def __init__(self) -> None:
        many = num_ranks() > 1
        self._group = dist.new_group(backend="gloo", timeout=_LONG) if many else None

    def __call__(self) -> None:
        """Return when all processes have arrived."""
        if self._group is not None:
            dist.all_reduce(torch.zeros(1), group=self._group)
