"""AdamW over the parameters that are trained, in groups by decay and learning rate."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from glit.train.config import TrainConfig
from glit.train.model import TrainedModel
from glit.train.objective import Objective


def make_optimizer(
    model: TrainedModel, objective: Objective, config: TrainConfig, *, fused: bool
) -> torch.optim.AdamW:
    """The optimiser of a run.

    Args:
        model: what is trained.
        objective: says at which rate its own module learns.
        config: rates and decay.
        fused: one kernel for all parameters; other numbers than without.
    """
    groups = parameter_groups(model, objective, config)
    return torch.optim.AdamW(groups, lr=config.lr, fused=fused)


def parameter_groups(
    model: TrainedModel, objective: Objective, config: TrainConfig
) -> list[dict[str, Any]]:
    """Matrices and embeddings with weight decay; gains, biases and the logit scale without.

    What the objective brings has groups of its own, at its own learning rate.
    """
    parts: list[tuple[nn.Module, float]] = [(model.encoder, config.lr)]
    if model.module is not None:
        parts.append((model.module, objective.module_lr or config.lr))
    groups = []
    for part, rate in parts:
        trained = [p for p in part.parameters() if p.requires_grad]
        for matrices, decay in ((True, config.weight_decay), (False, 0.0)):
            chosen = [p for p in trained if (p.ndim >= 2) is matrices]
            groups.append({"params": chosen, "weight_decay": decay, "lr": rate})
    return groups
