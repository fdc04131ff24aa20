"""Create AdamW with parameter groups by decay and learning rate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from glit.training.config import TrainConfig
from glit.training.model import TrainedModel
from glit.training.objective import Objective
from glit.training.towers import towers


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
    betas = config.beta1, config.beta2
    return torch.optim.AdamW(groups, lr=config.lr, betas=betas, eps=config.eps, fused=fused)


def parameter_groups(
    model: TrainedModel, objective: Objective, config: TrainConfig
) -> list[dict[str, Any]]:
    """Matrices and embeddings with weight decay; gains, biases and the logit scale without.

    What has a learning rate of its own has groups of its own: a tower, the objective's module.
    """
    groups = []
    for parameters, rate in _parts(model, objective, config):
        trained = [p for p in parameters if p.requires_grad]
        for matrices, decay in ((True, config.weight_decay), (False, 0.0)):
            chosen = [p for p in trained if (p.ndim >= 2) is matrices]
            groups.append({"params": chosen, "weight_decay": decay, "lr": rate})
    return groups


def _parts(
    model: TrainedModel, objective: Objective, config: TrainConfig
) -> Iterator[tuple[list[nn.Parameter], float]]:
    """Parameters and their highest learning rate; every one of the model once."""
    rates = {"image": config.image_lr, "text": config.text_lr}
    apart: set[nn.Parameter] = set()
    for name, modules in towers(model.encoder.clip).items():
        if rates[name]:
            own = [p for module in modules for p in module.parameters()]
            apart.update(own)
            yield own, rates[name]
    yield [p for p in model.encoder.parameters() if p not in apart], config.lr
    if model.module is not None:
        yield list(model.module.parameters()), objective.module_lr or config.lr
