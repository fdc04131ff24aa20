"""The result of a training run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """The result of a run."""

    step: int
    """Optimiser steps done, over all its parts."""
    total_steps: int
    """Optimiser steps of the whole schedule."""
    loss: float
    """Loss of the last batch."""
    checkpoint: Path
    """The last checkpoint."""
    interrupted: bool
    """True if the user stopped it; ``resume`` goes on."""
    signum: int = 0
    """Number of the signal that stopped it; 0: none, or another process got it."""
