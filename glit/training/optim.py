"""AdamW and its parameter groups, the learning rate schedule, and which towers are trained."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from glit.errors import RecipeError
from glit.training.config import TrainConfig
from glit.training.model import TrainedModel
from glit.training.objective import Objective

if TYPE_CHECKING:
    from transformers import CLIPModel


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


def towers(clip: CLIPModel) -> dict[str, list[nn.Module]]:
    """The modules of each tower, its projection among them; the logit scale belongs to neither."""
    if clip.config.model_type == "siglip":
        return {"image": [clip.vision_model], "text": [clip.text_model]}
    return {
        "image": [clip.vision_model, clip.visual_projection],
        "text": [clip.text_model, clip.text_projection],
    }


def lock_towers(clip: CLIPModel, config: TrainConfig) -> None:
    """Freeze the towers that ``train.lock_image`` and ``train.lock_text`` name.

    Of a locked tower the last ``train.unlocked_blocks`` blocks are trained all the same, with the
    norm and the projection after them.

    Raises:
        RecipeError: a tower has not as many blocks.
    """
    vision: Any = clip.vision_model
    text: Any = clip.text_model
    siglip = clip.config.model_type == "siglip"
    for name, modules in towers(clip).items():
        if not getattr(config, f"lock_{name}"):
            continue
        if name == "image":
            blocks, norm = vision.encoder.layers, vision.post_layernorm
        else:
            blocks, norm = text.encoder.layers, text.final_layer_norm
        projection = modules[0].get_submodule("head") if siglip else modules[1]
        if config.unlocked_blocks > len(blocks):
            raise RecipeError(
                f"train.unlocked_blocks = {config.unlocked_blocks}: the {name} tower has "
                f"{len(blocks)}; to train all of it, leave train.lock_{name} out"
            )
        for module in modules:
            module.requires_grad_(False)
        if config.unlocked_blocks:
            for module in (*blocks[-config.unlocked_blocks :], norm, projection):
                module.requires_grad_(True)
