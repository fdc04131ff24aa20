"""Gradients of a training step on a GPU equal the CPU's; skipped where there is none."""

from __future__ import annotations

import pytest
import torch
from accelerate import Accelerator

from glit.models.weights import resolve
from glit.training.config import TrainConfig
from glit.training.setup import prepare
from glit.training.step import run_step

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


def gradients(made, device: str) -> dict[str, torch.Tensor]:
    """Of the first batch's loss in float32, by parameter."""
    made.model.to(device).train()
    made.model.zero_grad()
    epoch = made.loader.epoch(0)
    batch = next(epoch)[0].to(torch.device(device))
    epoch.close()
    accelerator = Accelerator(cpu=True)  # no autocast
    run_step([batch], model=made.model, objective=made.objective, accelerator=accelerator)
    named = made.model.named_parameters()
    return {name: each.grad.cpu().clone() for name, each in named if each.grad is not None}


@pytest.mark.parametrize("objective", ["fast-goal", "glit", "siglip"])
def test_gradients(built_by_mini, objective) -> None:
    config = TrainConfig(
        model=str(resolve("mini-matcher").path), objective=objective, batch_size=4, num_workers=0
    )
    made = prepare(config, str(built_by_mini))
    on_cpu, on_gpu = gradients(made, "cpu"), gradients(made, "cuda")
    noise = 1e-4 * max(float(each.norm()) for each in on_cpu.values())
    assert on_cpu.keys() == on_gpu.keys() and len(on_cpu) > 50
    for name, each in on_cpu.items():  # those of keys' biases are zero but for rounding
        difference = float((on_gpu[name] - each).norm())
        assert difference <= 1e-3 * max(float(each.norm()), noise), name
