"""Forward and backward pass of one optimiser step, plain or with gradient caching.

Gradient caching (Gao et al., "Scaling deep contrastive learning batch size under memory limited
setup", 2021): encode the parts of a batch without keeping activations, take the loss of the whole
batch with respect to the embeddings, then encode each part again and push those gradients through.
The gradients equal the plain ones; memory is that of one part; the encoders run forward twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glit.training.batch import Batch
from glit.training.features import Features, concatenate
from glit.training.gather import gather_features
from glit.training.objective import Objective

if TYPE_CHECKING:
    from accelerate import Accelerator


def run_step(
    parts: list[Batch],
    model: torch.nn.Module,
    objective: Objective,
    accelerator: Accelerator,
    *,
    scale: float = 1.0,
    last: bool = True,
) -> dict[str, Tensor]:
    """Add the gradients of one contrastive batch to the parameters; returns metrics.

    Args:
        parts: this process's share of the batch, in one part or in several (gradient caching).
        model: the prepared :class:`glit.training.model.TrainedModel`.
        objective: the loss.
        accelerator: decides autocast, loss scaling and gradient exchange.
        scale: factor on the loss (one over the accumulation steps).
        last: whether gradients are exchanged between processes now.
    """
    sync = contextlib.nullcontext if last else lambda: accelerator.no_sync(model)
    if len(parts) == 1:
        with sync():
            with accelerator.autocast():
                features, logit_scale = model(parts[0])
            loss, metrics = objective(gather_features(features), logit_scale.float())
            accelerator.backward(loss * scale)
    else:
        loss, metrics = _cached_step(parts, model, objective, accelerator, scale, sync)
    return {"loss": loss.detach(), "logit_scale": logit_scale_of(model), **metrics}


def logit_scale_of(model: torch.nn.Module) -> Tensor:
    """The logit scale as a factor, whatever the model is wrapped in."""
    found = next(v for k, v in model.named_parameters() if k.endswith("clip.logit_scale"))
    return found.detach().exp().reshape(())


def _cached_step(
    parts: list[Batch],
    model: torch.nn.Module,
    objective: Objective,
    accelerator: Accelerator,
    scale: float,
    sync: Callable[[], Any],
) -> tuple[Tensor, dict[str, Tensor]]:
    seen: list[Features] = []
    random_states: list[_RandomState] = []
    logit_scale = logit_scale_of(model)
    with torch.no_grad(), accelerator.autocast():
        for part in parts:
            random_states.append(_RandomState())
            seen.append(model(part)[0])
    whole = concatenate(seen)
    leaves = {name: value.requires_grad_() for name, value in whole.embeddings().items()}
    numbers = {name: value.float().requires_grad_() for name, value in whole.numbers.items()}
    scale_leaf = logit_scale.float().requires_grad_()
    features = replace(whole.with_rows(leaves), numbers=numbers)
    loss, metrics = objective(gather_features(features), scale_leaf)
    inputs = [*leaves.values(), *numbers.values(), scale_leaf]
    grads = torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)
    of_rows = dict(zip(leaves, grads, strict=False))
    of_numbers = dict(zip(numbers, grads[len(leaves) :], strict=False))
    sizes = [len(part.valid_N) for part in seen]
    splits = {name: grad.split(sizes) for name, grad in of_rows.items()}

    for index, part in enumerate(parts):
        final = index == len(parts) - 1
        with sync() if final else accelerator.no_sync(model):
            with random_states[index].replayed(), accelerator.autocast():
                features, part_scale = model(part)
            rows = features.embeddings()
            surrogate = sum((rows[name] * split[index]).sum() for name, split in splits.items())
            assert isinstance(surrogate, Tensor)
            # what is the same in all parts takes its whole gradient in the last one
            once = float(final)
            surrogate = surrogate + part_scale * (grads[-1] * once)
            for name, grad in of_numbers.items():
                surrogate = surrogate + (features.numbers[name] * (grad * once)).sum()
            accelerator.backward(surrogate * scale)
    return loss, metrics


class _RandomState:
    """The generators' states, so that dropout falls the same way in the second forward pass."""

    def __init__(self) -> None:
        self._cpu = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None

    @contextlib.contextmanager
    def replayed(self):
        devices = [torch.cuda.current_device()] if self._cuda is not None else []
        with torch.random.fork_rng(devices=devices):
            torch.set_rng_state(self._cpu)
            if self._cuda is not None:
                torch.cuda.set_rng_state(self._cuda)
            yield
