"""The mini models on the device against the CPU, backward included: the same answers?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glit.backends.matchers.clip import ClipMatcher
from glit.backends.proposers.yolos import YolosDetector
from glit.backends.weights import resolve
from glit.bench.gpu import models
from glit.bench.gpu.bench import Bench, row
from glit.bench.gpu.lism import share_kept
from glit.bench.gpu.models import first_batch, prepared
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
        yield from _boxes(bench, images, precision)
        yield from _embeddings(bench, images, precision)
    yield from _gradients(bench)


def _boxes(bench: Bench, images: list[np.ndarray], precision: Precision) -> Iterator[Row]:
    def found(device: Device, precision: Precision) -> list[np.ndarray]:
        config = ProposeConfig(device=device, precision=precision)
        regions = YolosDetector(config, resolve("mini-proposer")).detect(images)
        return [np.array([r.box.xyxy for r in each]).reshape(-1, 4) for each in regions]

    least = 0.97 if precision == "float32" else 0.8
    share = share_kept(found("cpu", "float32"), found(bench.device, precision), least)
    what = f"mini YOLOS' boxes that keep an IoU of {least}, {precision}"
    yield row(what, share, "of 1", limit=1.0, bottleneck="rounding")


def _embeddings(bench: Bench, images: list[np.ndarray], precision: Precision) -> Iterator[Row]:
    boxes = [np.array([[0.0, 0.0, 128.0, 128.0], [10.0, 20.0, 70.0, 100.0]])] * len(images)

    def found(device: Device, precision: Precision) -> np.ndarray:
        config = ScoreConfig(device=device, precision=precision)
        matcher = ClipMatcher(config, resolve("mini-matcher"))
        return np.concatenate(matcher.embed_regions(images, boxes))

    cosine = (found("cpu", "float32") * found(bench.device, precision)).sum(axis=1).min()
    what = f"mini CLIP's smallest cosine with the CPU's, {precision}"
    yield row(what, float(cosine), "of 1", limit=1.0, bottleneck="rounding")


def _gradients(bench: Bench) -> Iterator[Row]:
    """Loss and gradients of a fast-goal step of the mini matcher in float32."""
    import torch
    from accelerate import Accelerator

    made = prepared(bench, str(resolve("mini-matcher").path), batch_size=4, num_workers=0)
    found: dict[str, dict[str, torch.Tensor]] = {}
    plain = Accelerator(cpu=True)  # no autocast
    for device in ("cpu", bench.device):
        made.model.to(device).zero_grad()
        batch = first_batch(made).to(torch.device(device))
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
    yield row(
        f"gradients within {SAME_GRADIENT} of the CPU's, float32",
        sum(error <= SAME_GRADIENT for error in errors.values()) / len(errors),
        "of 1",
        limit=1.0,
        bottleneck="rounding",
    )
