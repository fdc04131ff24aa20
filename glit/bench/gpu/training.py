"""Training: a fast-goal step of CLIP ViT-B/16 at batch 256, from memory and from shards."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from transformers import CLIPConfig

from glit.bench.gpu import models
from glit.bench.gpu.bench import Bench, row
from glit.bench.gpu.models import NUM_BATCHES, first_batch, prepared
from glit.bench.harness import Row
from glit.bench.random_clip import ClipShape
from glit.bench.random_dataset import WORDS
from glit.runtime.cores import usable_cores
from glit.training.batch import Batch
from glit.training.config import TrainConfig
from glit.training.optimizer import parameter_groups
from glit.training.setup import Ingredients, mixed_precision
from glit.training.step import run_step


def measure(bench: Bench) -> Iterator[Row]:
    """Samples a second: from memory, from shards, compiled; the loader alone."""
    size = bench.scale.batch_size
    clip = models.clip(bench, [" ".join(WORDS)] * 3)
    made = prepared(bench, str(clip.path), batch_size=size)
    precision = mixed_precision("auto", bench.device)
    step = step_of(made, precision, bench.device)
    batch = first_batch(made).to(torch.device(bench.device))
    lengths = batch.texts.length_T.tolist()
    operations = step_operations(bench.scale.sizes.clip, lengths, len(batch.pixels_V3SS))
    kind = {"no": "float32", "bf16": "bfloat16", "fp16": "float16"}[precision]
    limit = bench.limit(operations, kind)

    def rate(what: str, seconds: float, bottleneck: str) -> Row:
        most = size * limit if limit else None
        what = f"training, batch {size}, {precision}, {what}"
        return row(what, size / seconds, "samples/s", limit=most, bottleneck=bottleneck)

    eager = bench.seconds(lambda: step(batch))
    yield rate("eager, from memory", eager, "kernels' own speed")
    alone = bench.seconds(lambda: deque(made.loader.epoch(0), maxlen=0), repeats=1) / NUM_BATCHES
    what = f"loader alone, {usable_cores()} cores"
    yield row(what, size / alone, "samples/s", bottleneck="decoding")
    slower = "loader" if alone > eager else "the step"
    yield rate("eager, from shards", _from_shards(bench, made, step), slower)
    if bench.device == "cuda":
        free = 1 - torch.cuda.max_memory_allocated() / torch.cuda.mem_get_info()[1]
        yield row("memory of such a step that is free", free, "of 1", bottleneck="activations")
    yield from bench.kernels("an eager training step", lambda: step(batch))
    compiled = made.model.encoder.clip
    backend = "inductor" if bench.device == "cuda" else "eager"
    compiled.vision_model.compile(backend=backend)
    compiled.text_model.encoder.compile(dynamic=True, backend=backend)
    yield rate("compiled, from memory", bench.seconds(lambda: step(batch)), "kernels' own speed")


def step_of(made: Ingredients, precision: Any, device: str) -> Callable[[Batch], Any]:
    """A whole step on a batch that is on the device, at learning rate zero, so that every call does
    the same; it returns the metrics."""
    AcceleratorState._reset_state()  # or what ran before in this process decides the precision
    cuda = device == "cuda"
    accelerator = Accelerator(mixed_precision=precision, cpu=not cuda)
    model, optimizer = accelerator.prepare(made.model, still_optimizer(made, fused=cuda))
    model.train()

    def step(batch: Batch) -> Any:
        found = run_step([batch], model=model, objective=made.objective, accelerator=accelerator)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return found

    return step


def still_optimizer(made: Ingredients, *, fused: bool = False) -> torch.optim.AdamW:
    """A run's optimiser at learning rate zero."""
    groups = parameter_groups(made.model, made.objective, TrainConfig())
    return torch.optim.AdamW([{**group, "lr": 0.0} for group in groups], fused=fused)


def _from_shards(bench: Bench, made: Ingredients, step: Callable[[Batch], Any]) -> float:
    """Seconds a step over some epochs of the loader."""
    device = torch.device(bench.device)
    epochs = -(-bench.scale.num_steps // NUM_BATCHES)
    started = time.perf_counter()
    for epoch in range(epochs):
        for parts in made.loader.epoch(epoch):
            step(parts[0].to(device))
    bench.finish()
    return (time.perf_counter() - started) / (epochs * NUM_BATCHES)


def step_operations(shape: ClipShape, text_lengths: list[int], num_images: int) -> float:
    """Multiply-adds times two of a forward and backward pass, padding not counted."""
    config: Any = CLIPConfig(**shape)
    seen, read = config.vision_config, config.text_config
    patches = (seen.image_size // seen.patch_size) ** 2
    vision = _tower(seen, [patches + 1]) + 2 * patches * 3 * seen.patch_size**2 * seen.hidden_size
    return 3 * (num_images * vision + _tower(read, text_lengths))


def _tower(config: Any, lengths: list[int]) -> float:
    width, layers = config.hidden_size, config.num_hidden_layers
    return sum(layers * (24 * width**2 * n + 4 * width * n**2) for n in lengths)
