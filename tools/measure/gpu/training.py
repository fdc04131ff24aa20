"""Training: a fast-goal step of CLIP ViT-B/16 at batch 256, from memory and from shards."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from glit.bench.harness import Row, in_own_process
from glit.bench.scenes import build_scenes, paint
from glit.models.clip.random_clip import ClipShape, write_random_clip
from glit.runtime.cores import usable_cores
from glit.training.batch import Batch
from glit.training.config import TrainConfig
from glit.training.optim import parameter_groups
from glit.training.setup import Ingredients, mixed_precision, prepare
from glit.training.step import run_step
from tools.measure.gpu.bench import Bench, row

_NUM_BATCHES = 12
"""Batches of the dataset that is trained on; three at the tiny scale."""
_DISTINCT = 256
"""Scenes that are painted; others are copies of their files."""
_STEPS, _MOST_S = 1000, 40
"""Steps from shards, and the seconds after which no epoch is begun."""


def measure(bench: Bench) -> Iterator[Row]:
    """Samples a second: from memory, from shards, compiled; the loader alone."""
    size = bench.scale.batch_size
    sizes = bench.scale.sizes
    batches = _NUM_BATCHES if bench.is_full else 3
    with torch.device(bench.device):
        made = prepared(
            bench.scratch, sizes.clip, num=batches * size, size_px=bench.scale.sample_px,
            rows=sizes.embedding_rows, batch_size=size,
        )  # fmt: skip
    precision = mixed_precision("auto", bench.device)
    step = step_of(made, precision, bench.device)
    epoch = made.loader.epoch(0)
    batch = next(epoch)[0].to(torch.device(bench.device))
    epoch.close()
    what = f"training, batch {size}, {precision}"
    eager = bench.figure(
        f"{what}, eager, from memory", lambda: step(batch), number=size, unit="samples/s",
        precision={"no": "float32", "bf16": "bfloat16", "fp16": "float16"}[precision],
        bottleneck="kernels' own speed",
    )  # fmt: skip
    yield eager
    rate, limit = eager["measured"], eager["limit"]
    cores = f"loader alone, {usable_cores()} cores"
    alone, _ = _seconds_a_batch(bench, made, lambda batch: None)
    yield row(cores, size / alone, "samples/s", bottleneck="decoding")
    slower = "loader" if size / alone < rate else "the step"
    shards, steps = _seconds_a_batch(bench, made, step)
    what_shards = f"{what}, eager, from shards, {steps} steps"
    yield row(what_shards, size / shards, "samples/s", limit=limit, bottleneck=slower)
    if bench.device == "cuda":
        free = 1 - torch.cuda.max_memory_allocated() / torch.cuda.mem_get_info()[1]
        yield row("memory of such a step that is free", free, "of 1", bottleneck="activations")
    compiled = made.model.encoder.clip
    backend = "inductor" if bench.device == "cuda" else "eager"
    compiled.vision_model.compile(backend=backend)
    compiled.text_model.encoder.compile(dynamic=True, backend=backend)
    rate = size / bench.seconds(lambda: step(batch))
    what, bottleneck = f"{what}, compiled, from memory", "kernels' own speed"
    yield row(what, rate, "samples/s", limit=limit, bottleneck=bottleneck)


def prepared(
    folder: Path, shape: ClipShape, *, num: int, size_px: int, rows: int = 0, **changes: Any
) -> Ingredients:
    """Model, objective and loader of a CLIP with random weights on hard scenes.

    Args:
        folder: where clip and dataset are; they are made if they are not.
        shape: of the CLIP.
        num: scenes.
        size_px: their side.
        rows: token embeddings; 0 for those of the tokenizer.
        changes: keys of ``[train]``.
    """
    clip, dataset = folder / "clip", folder / "dataset"
    if not dataset.exists():
        scenes = paint(folder / "scenes", num=min(num, _DISTINCT), seed=0, level="hard",
                       size=size_px, image_format="jpeg")  # fmt: skip
        copied(scenes, num)
        captions = scenes / "captions.jsonl"
        corpus = captions.read_text(encoding="utf-8").splitlines()
        write_random_clip(clip, shape, seed=0, corpus=corpus, vocabulary=900, embedding_rows=rows)
        settings = [f"split.tokenizer={clip}"]
        # in a process of its own, whose memory is not that of a step
        in_own_process(partial(build_scenes, captions=captions, settings=settings), scenes, dataset)
    config = TrainConfig(model=str(clip), **changes)
    return prepare(config, str(dataset), pin_memory=torch.cuda.is_available())


def step_of(made: Ingredients, precision: Any, device: str) -> Callable[[Batch], Any]:
    """A whole step on a batch that is on the device, at learning rate zero, so that every call does
    the same; it returns the metrics."""
    AcceleratorState._reset_state()  # or what ran before in this process decides the precision
    cuda = device == "cuda"
    accelerator = Accelerator(mixed_precision=precision, cpu=not cuda)
    groups = parameter_groups(made.model, made.objective, TrainConfig())
    still = torch.optim.AdamW([{**group, "lr": 0.0} for group in groups], fused=cuda)
    model, optimizer = accelerator.prepare(made.model, still)
    model.train()

    def step(batch: Batch) -> Any:
        found = run_step([batch], model=model, objective=made.objective, accelerator=accelerator)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return found

    return step


def _seconds_a_batch(
    bench: Bench, made: Ingredients, work: Callable[[Batch], Any]
) -> tuple[float, int]:
    """Seconds a batch of the loader and of what is done with it, and how many were timed; the
    first of each epoch, for which everything waits, is not."""
    device, spent, steps, begun = torch.device(bench.device), 0.0, 0, time.perf_counter()
    most = _STEPS if bench.is_full else 2
    for epoch in count():
        batches = made.loader.epoch(epoch)
        work(next(batches)[0].to(device))
        bench.finish()
        started = time.perf_counter()
        for parts in batches:
            work(parts[0].to(device))
            steps += 1
        bench.finish()
        spent += time.perf_counter() - started
        if steps >= most or time.perf_counter() - begun > _MOST_S:
            return spent / steps, steps
    raise AssertionError


def copied(scenes: Path, num: int) -> None:
    """Fill up a folder of scenes to ``num`` with copies whose files differ by a byte at their end:
    to a loader they are as good as others, and cost nothing to paint."""
    lines = (scenes / "captions.jsonl").read_text(encoding="utf-8").splitlines()
    with (scenes / "captions.jsonl").open("a", encoding="utf-8") as captions:
        for number in range(len(lines), num):
            known = json.loads(lines[number % len(lines)])
            source = scenes / "images" / known["path"]
            path = source.with_stem(f"{source.stem}-{number}")
            path.write_bytes(source.read_bytes() + bytes([number // len(lines)]))
            known["path"] = str(path.relative_to(scenes / "images"))
            captions.write(json.dumps(known) + "\n")
