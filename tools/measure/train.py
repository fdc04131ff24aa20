"""How fast training is: ``python -m tools.measure.train PART -o OUT``.

``step``    our step against the published way, time alternated in one process, loss compared,
            peak memory in a process each; full-size ViT-B/16 with random weights
``loader``  batches from shards against bare decoding and resizing of the same images by the same
            threads; large photographs against the same ones packed with ``pack.max_side``
``flat``    cost per sample and memory from 1,000 to 50,000 samples
``gpu``     samples a second from tensors in memory against the matrix rate of the device

Every part prints JSON and writes it to ``OUT/PART.json``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from glit.backends.tokenizer import TextTokenizer
from glit.bench.gpu.training import step_operations
from glit.bench.harness import in_own_process, write_json
from glit.bench.lism_flism.operations import matrix_rate
from glit.bench.machine import peak_mb, resident_mb
from glit.bench.random_clip import TINY, VIT_B_16, ClipShape
from glit.bench.random_dataset import DatasetShape
from glit.training.batch import Batch
from glit.training.config import TrainConfig
from glit.training.optimizer import parameter_groups
from glit.training.sample import PlannedSample
from glit.training.setup import Ingredients, prepare
from glit.training.step import run_step
from tools.measure.published_step import padded_batch, published_loss
from tools.measure.train_loader import flat_part, loader_part
from tools.measure.train_setup import (
    Timing,
    clip_folder,
    collated,
    dataset_folder,
    planned_samples,
    still_optimizer,
    timed,
    with_pixels,
)

SHAPES = {"vit-b-16": VIT_B_16, "tiny": TINY}
CAPTION = {"num_sentences": 10, "words": 19}
"""202 tokens a caption and 22 a sentence with start and end; GLIT100k's mean is 159 words."""


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(prog="python -m tools.measure.train", description=__doc__)
    parser.add_argument("part", choices=["step", "loader", "flat", "gpu"])
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/bench"))
    parser.add_argument("--model", choices=SHAPES, default="vit-b-16")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--images", type=int, default=128)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as scratch:
        result = PARTS[arguments.part](arguments, Path(scratch))
    print(json.dumps(result, indent=2))
    write_json(arguments.output / f"{arguments.part}.json", result)


def step_part(arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Both steps on the same batch, alternated; then the memory of each."""
    steps = _steps(SHAPES[arguments.model], arguments.batch, scratch)
    losses = {name: step() for name, step in steps.items()}  # also warms up
    times: dict[str, list[Timing]] = {name: [] for name in steps}
    for _ in range(arguments.repeats):
        for name, step in steps.items():
            times[name].append(timed(step))
    memory = {name: in_own_process(memory_of, name, arguments) for name in steps}
    pairs = list(zip(times["published"], times["glit"], strict=True))
    return {
        "model": arguments.model,
        "weights": "random",
        "batch": arguments.batch,
        "threads": arguments.threads,
        "wall_s": {name: [t.wall_s for t in values] for name, values in times.items()},
        "cpu_s": {name: [t.cpu_s for t in values] for name, values in times.items()},
        "speedup_wall": statistics.median(p.wall_s / g.wall_s for p, g in pairs),
        "speedup_cpu": statistics.median(p.cpu_s / g.cpu_s for p, g in pairs),
        "loss": losses,
        "loss_difference": abs(losses["glit"] - losses["published"]),
        "peak_memory_mb": memory,
        "memory_ratio": memory["published"] / memory["glit"],
    }


def memory_of(variant: str, arguments: argparse.Namespace) -> float:
    """What a step adds to the resident memory of this process, at its peak, MB."""
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as scratch:
        step = _steps(SHAPES[arguments.model], arguments.batch, Path(scratch))[variant]
        before = resident_mb()
        step()
    return peak_mb() - before


def gpu_part(arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """GLIT100k's schedule from tensors in memory: rate, share of the matrix rate, and the floor."""
    from accelerate import Accelerator

    accelerator = Accelerator(mixed_precision="bf16" if torch.cuda.is_available() else "no")
    device, shape = accelerator.device, SHAPES[arguments.model]
    made, samples = _made(shape, arguments.batch, scratch)
    batch = with_pixels(made, samples).to(device)
    optimizer = torch.optim.AdamW(
        parameter_groups(made.model, made.objective, TrainConfig()), lr=5e-6
    )
    model, optimizer = accelerator.prepare(made.model, optimizer)

    def step() -> None:
        run_step([batch], model=model, objective=made.objective, accelerator=accelerator)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        _finish(device)

    for _ in range(3):
        step()
    seconds = statistics.median(timed(step).wall_s for _ in range(max(3, arguments.repeats)))
    operations = step_operations(shape, batch.texts.length_T.tolist(), len(batch.pixels_V3SS))
    kind, side = ("bfloat16", 8192) if device.type == "cuda" else ("float32", 1024)
    rate = matrix_rate(device, kind, side).operations_per_s
    floor = operations / rate
    return {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "model": arguments.model,
        "weights": "random",
        "batch": arguments.batch,
        "seconds_per_step": seconds,
        "samples_per_second": arguments.batch / seconds,
        "epoch_of_100647_pairs_s": 100_647 / (arguments.batch / seconds),
        "matrix_rate_tflops": rate / 1e12,
        "share_of_matrix_rate": floor / seconds,
        "floor_seconds_per_step": floor,
    }


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _steps(shape: ClipShape, batch_size: int, scratch: Path) -> dict[str, Callable[[], float]]:
    """A whole step of either variant on one model, ours with tokens and rows of texts made anew.

    They return the loss; the learning rate is zero, so that every call does the same.
    """
    from accelerate import Accelerator

    made, samples = _made(shape, batch_size, scratch)
    optimizer = still_optimizer(made, TrainConfig())
    accelerator = Accelerator(cpu=True)
    encoder, tokenizer = made.model.encoder, TextTokenizer(made.start)
    pixels = with_pixels(made, samples).pixels_V3SS
    padded = padded_batch(
        _collated(made, samples, pixels),
        samples,
        tokenizer,
        mean=encoder.mean_3,
        std=encoder.std_3,
    )
    made.model.train()

    def ours() -> float:
        metrics = run_step(
            [_collated(made, samples, pixels)],
            model=made.model,
            objective=made.objective,
            accelerator=accelerator,
        )
        optimizer.step()
        optimizer.zero_grad()
        return float(metrics["loss"])

    def theirs() -> float:
        loss = published_loss(encoder.clip, padded, tokenizer)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    return {"published": theirs, "glit": ours}


def _made(shape: ClipShape, batch: int, scratch: Path) -> tuple[Ingredients, list[PlannedSample]]:
    """Model, objective and the samples of one batch."""
    clip, dataset = scratch / "clip", scratch / "dataset"
    if not dataset.exists():
        data = DatasetShape(num_samples=batch, width=320, height=240, **CAPTION)
        dataset = dataset_folder(clip_folder(shape, scratch), dataset, data)
    made = prepare(TrainConfig(model=str(clip), batch_size=batch, num_workers=0), str(dataset))
    return made, planned_samples(made.loader)


def _collated(made: Ingredients, samples: list[PlannedSample], pixels: torch.Tensor) -> Batch:
    """A batch of samples whose pixels are there already."""
    return replace(collated(made, samples)[0], pixels_V3SS=pixels)


PARTS: dict[str, Callable[[argparse.Namespace, Path], dict[str, Any]]] = {
    "step": step_part,
    "loader": loader_part,
    "flat": flat_part,
    "gpu": gpu_part,
}


if __name__ == "__main__":
    main()
