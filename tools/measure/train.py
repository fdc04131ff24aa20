"""How fast training is: ``python -m tools.measure.train PART -o OUT``.

``step``        our step against the published way on the same batch, in turn in one process, loss
                compared, peak memory in a process each; full-size ViT-B/16 with random weights
``objectives``  a step of every objective, in turn with one of ``clip``; the memory that each adds

``glit bench gpu`` measures a step on a GPU against its matrix rate.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from glit.backends.tokenizer import TextTokenizer
from glit.bench.gpu import training
from glit.bench.harness import Row, in_own_process
from glit.bench.machine import peak_mb, resident_mb
from glit.bench.random_clip import TINY, VIT_B_16, ClipShape
from glit.training.batch import Batch, PixelPlace, collate
from glit.training.loader import BatchLoader
from glit.training.objectives import OBJECTIVES
from glit.training.planning import plan_sample
from glit.training.sample import PlannedSample
from glit.training.setup import Ingredients
from tools.measure.parts import in_turn, run_parts
from tools.measure.published_step import padded_batch, published_loss

SHAPES = {"vit-b-16": VIT_B_16, "tiny": TINY}
CLIP_VOCABULARY = 49_408
Step = Callable[[], float]
"""A whole step at learning rate zero, so that every call does the same; its loss."""

MEASURED = [name for name, kind in OBJECTIVES.items() if not kind().needs.num_negatives]
"""Those that need no false sentences."""


def main() -> None:
    """Run the named parts."""
    parser = argparse.ArgumentParser(prog="python -m tools.measure.train", description=__doc__)
    parser.add_argument("--model", choices=SHAPES, default="vit-b-16")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--objectives", nargs="+", choices=OBJECTIVES, default=MEASURED)
    run_parts(parser, {"step": step_part, "objectives": objectives_part})


def step_part(arguments: argparse.Namespace) -> Iterator[Row]:
    """Both steps on the same batch, in turn; then the memory of each."""
    with tempfile.TemporaryDirectory() as scratch:
        steps = published_and_ours(SHAPES[arguments.model], arguments.batch, Path(scratch))
        losses = {name: step() for name, step in steps.items()}
        found = in_turn(steps, repeats=arguments.repeats)
    memory = {name: in_own_process(_memory_of, name, arguments) for name in steps}
    yield {
        **_setting(arguments), **found, "loss": losses, "peak_memory_mb": memory,
        "memory_ratio": memory["published"] / memory["glit"],
    }  # fmt: skip


def objectives_part(arguments: argparse.Namespace) -> Iterator[Row]:
    """Times and memory of every objective, and how they stand to those of ``clip``."""
    shape = SHAPES[arguments.model]
    memory_of_clip = in_own_process(_memory_of, "clip", arguments)
    with tempfile.TemporaryDirectory() as scratch:
        baseline, _ = step_of("clip", shape, arguments.batch, Path(scratch))
        for name in arguments.objectives:
            step, added = step_of(name, shape, arguments.batch, Path(scratch))
            found = in_turn({"clip": baseline, "own": step}, repeats=arguments.repeats)
            memory = in_own_process(_memory_of, name, arguments)
            yield {
                "objective": name, **_setting(arguments), **found, "peak_mb": memory,
                "memory_times_clip": memory / memory_of_clip, "parameters_added": added,
            }  # fmt: skip


def _setting(arguments: argparse.Namespace) -> Row:
    own = {key: getattr(arguments, key) for key in ("model", "batch", "threads")}
    return {**own, "weights": "random"}


def _memory_of(name: str, arguments: argparse.Namespace) -> float:
    """What a step adds to the resident memory of this process, at its peak, MB."""
    torch.set_num_threads(arguments.threads)
    shape = SHAPES[arguments.model]
    with tempfile.TemporaryDirectory() as scratch:
        if name in OBJECTIVES:
            step, _ = step_of(name, shape, arguments.batch, Path(scratch))
        else:
            step = published_and_ours(shape, arguments.batch, Path(scratch))[name]
        before = resident_mb()
        step()
    return peak_mb() - before


def published_and_ours(shape: ClipShape, batch_size: int, scratch: Path) -> dict[str, Step]:
    """A step of either variant on one model, ours with tokens and rows of texts made anew."""
    made, samples = _made(shape, batch_size, scratch)
    encoder, tokenizer = made.model.encoder, TextTokenizer(made.start)
    pixels = with_pixels(made, samples).pixels_V3SS

    def batch() -> Batch:
        return replace(collated(made, samples)[0], pixels_V3SS=pixels)

    scales = {"mean": encoder.mean_3, "std": encoder.std_3}
    padded = padded_batch(batch(), samples, tokenizer, **scales)
    optimizer = training.still_optimizer(made)

    def theirs() -> float:
        loss = published_loss(encoder.clip, padded, tokenizer)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    ours = training.step_of(made, "no", "cpu")
    return {"glit": lambda: float(ours(batch())["loss"]), "published": theirs}


def step_of(objective: str, shape: ClipShape, batch_size: int, scratch: Path) -> tuple[Step, int]:
    """A step of an objective, and how many parameters it brings."""
    made, samples = _made(shape, batch_size, scratch, objective=objective)
    batch, module = with_pixels(made, samples), made.model.module
    added = 0 if module is None else sum(each.numel() for each in module.parameters())
    step = training.step_of(made, "no", "cpu")
    return lambda: float(step(batch)["loss"]), added


def _made(
    shape: ClipShape, batch: int, scratch: Path, **changes: Any
) -> tuple[Ingredients, list[PlannedSample]]:
    """Model, objective and the samples of one batch."""
    rows = CLIP_VOCABULARY if shape is VIT_B_16 else 0
    made = training.prepared(
        scratch, shape, num=batch, size_px=256, rows=rows, batch_size=batch, num_workers=0,
        **changes,
    )  # fmt: skip
    return made, planned_samples(made.loader)


def planned_samples(loader: BatchLoader) -> list[PlannedSample]:
    """Every sample of the loader's dataset, in order."""
    draw = np.random.default_rng
    groups = [loader.dataset.row_group(number) for number in range(len(loader.dataset.places))]
    how: dict[str, Any] = {"side": loader.side, "fit": loader.config.image_fit}
    return [
        plan_sample(group, row, loader.objective, **how, draw=draw(0))
        for group in groups
        for row in range(len(group))
    ]


def collated(made: Ingredients, samples: list[PlannedSample]) -> tuple[Batch, list[PixelPlace]]:
    """A batch of samples without their pixels, and where these go."""
    loader, context = made.loader, made.loader.config.context
    sizes: Any = {"side": loader.side, "context": context, "pad_id": loader.pad_id}
    return collate(samples, loader.tokenize, made.objective.needs, **sizes)


def with_pixels(made: Ingredients, samples: list[PlannedSample]) -> Batch:
    """A batch of samples, decoded."""
    batch, places = collated(made, samples)
    for sample, place in zip(samples, places, strict=True):
        sample.write_pixels(place.whole, place.crops, fit=made.loader.config.image_fit)
    return batch


if __name__ == "__main__":
    main()
