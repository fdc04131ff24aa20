"""The mini models on the device against the CPU, backward included: the same answers?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from accelerate import Accelerator

from glit.backends.matchers.clip import ClipMatcher
from glit.backends.proposers.yolos import YolosDetector
from glit.backends.weights import resolve
from glit.bench.gpu import models
from glit.bench.gpu.bench import Bench, agreement
from glit.bench.harness import Row, detail
from glit.recipes.config import Device, Precision
from glit.stages.propose import ProposeConfig
from glit.stages.score import ScoreConfig
from glit.training.step import run_step

_NOISE = 1e-4  # of the largest gradient; those of keys' biases are zero but for rounding
SAME_GRADIENT = 1e-3
"""Largest relative difference of a parameter's gradients that count as the same."""


def measure(bench: Bench) -> Iterator[Row]:
    """The mini models' boxes, embeddings and gradients against the CPU's."""
    images = models.mini_scenes(bench)
    precisions: tuple[Precision, ...] = ("float32", "bfloat16")
    for precision in precisions if bench.device == "cuda" else precisions[:1]:
        least = 0.97 if precision == "float32" else 0.8
        boxes = _boxes("cpu", "float32", images), _boxes(bench.device, precision, images)
        share = models.share_kept(*boxes, least)
        yield agreement(f"mini YOLOS' boxes that keep an IoU of {least}, {precision}", share)
        wanted = _embeddings("cpu", "float32", images)
        found = _embeddings(bench.device, precision, images)
        cosine = float((wanted * found).sum(axis=1).min())
        yield agreement(f"mini CLIP's smallest cosine with the CPU's, {precision}", cosine)
    yield from _gradients(bench)


def _boxes(device: Device, precision: Precision, images: list[np.ndarray]) -> list[np.ndarray]:
    config = ProposeConfig(device=device, precision=precision)
    return models.boxes_of(YolosDetector(config, resolve("mini-proposer")).detect(images))


def _embeddings(device: Device, precision: Precision, images: list[np.ndarray]) -> np.ndarray:
    boxes = [np.array([[0.0, 0.0, 128.0, 128.0], [10.0, 20.0, 70.0, 100.0]])] * len(images)
    matcher = ClipMatcher(ScoreConfig(device=device, precision=precision), resolve("mini-matcher"))
    return np.concatenate(matcher.embed_regions(images, boxes))


def _gradients(bench: Bench) -> Iterator[Row]:
    """Loss and gradients of a fast-goal step of the mini matcher in float32."""
    made = models.prepared(bench, str(resolve("mini-matcher").path), batch_size=4, num_workers=0)
    found: dict[str, dict[str, torch.Tensor]] = {}
    plain = Accelerator(cpu=True)  # no autocast
    for device in ("cpu", bench.device):
        made.model.to(device).zero_grad()
        batch = models.first_batch(made).to(torch.device(device))
        run_step([batch], model=made.model, objective=made.objective, accelerator=plain)
        named = made.model.named_parameters()
        found[device] = {name: p.grad.cpu().clone() for name, p in named if p.grad is not None}
    wanted, seen = found["cpu"], found[bench.device]
    least = _NOISE * max(float(grad.norm()) for grad in wanted.values())
    errors = {
        name: float((seen[name] - grad).norm()) / max(float(grad.norm()), least)
        for name, grad in wanted.items()
    }
    yield detail("relative differences of gradients", errors)
    share = sum(error <= SAME_GRADIENT for error in errors.values()) / len(errors)
    yield agreement(f"gradients within {SAME_GRADIENT} of the CPU's, float32", share)
