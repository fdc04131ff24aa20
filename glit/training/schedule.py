"""The learning rate schedule: a linear warm-up, then a cosine."""

from __future__ import annotations

import math

from glit.training.config import TrainConfig


def learning_rate(config: TrainConfig, step: int, *, total_steps: int) -> float:
    """The rate for optimiser step ``step`` (from 0).

    >>> [learning_rate(TrainConfig(lr=1.0), step, total_steps=4) for step in (0, 2)]
    [1.0, 0.5]
    """
    lr, min_lr, warmup_steps = config.lr, config.min_lr, config.warmup_steps
    if step < warmup_steps:
        return lr * (step + 1) / warmup_steps
    done = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    return min_lr + (lr - min_lr) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def total_steps(config: TrainConfig, num_batches: int) -> int:
    """Optimiser steps of a schedule."""
    per_epoch = -(-num_batches // config.accumulation_steps)
    steps = per_epoch * config.epochs
    return min(steps, config.max_steps) if config.max_steps else steps
