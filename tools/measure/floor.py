"""The whole build against the bare floor: the same models on ready-made tensors, nothing else."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from glit.backends.captioners.transformers_generate import TransformersCaptioner
from glit.backends.matchers.clip import ClipMatcher
from glit.backends.matchers.crops import cut_crops
from glit.backends.proposers.yolos import YolosDetector
from glit.executors.local import to_its_end
from glit.executors.protocols import Job
from glit.images import decode
from glit.pipeline.plan import make_plan
from glit.pipeline.run import BuildRequest, build
from glit.runtime.progress import StageProgress
from glit.scenes import write_scenes
from glit.stages.plan import Recipe
from glit.stages.recipe import load_recipe

SEED = 2_500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorReport:
    """CPU seconds on one thread, start-up and model loading left out."""

    num_images: int
    stages_s: dict[str, float]
    floor_s: dict[str, float]

    @property
    def ratio(self) -> float:
        return sum(self.stages_s.values()) / sum(self.floor_s.values())


class _Timed:
    """The local executor with the CPU time of each task's units, its opening apart."""

    device = "cpu"

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def run(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            job.begin()
            worker = job.task.open(2)
            started = time.process_time()
            for unit in job.units:
                job.on_done(unit, to_its_end(worker.run(unit, {}), lambda _: None))
            self.seconds[job.task.name] = time.process_time() - started

    def close(self) -> None:
        """Nothing to stop."""


def measure_floor(num_images: int) -> FloorReport:
    """Build scenes with ``mini``, then run its models on the tensors of the same scenes."""
    recipe = load_recipe(
        "mini", overrides=["caption.device=cpu", "propose.device=cpu", "score.device=cpu"]
    )
    with tempfile.TemporaryDirectory() as folder:
        scenes = Path(folder) / "scenes"
        write_scenes(scenes, num=num_images, seed=SEED)
        timed = _Timed()
        request = BuildRequest(
            images=str(scenes / "images"), output=f"{folder}/dataset", recipe=recipe
        )
        build(request, timed, StageProgress(Console(quiet=True), quiet=True))
        import pyarrow.parquet as pq

        rows = pq.read_table(f"{folder}/dataset/data").to_pylist()
    floor = _floor(recipe, rows)
    return FloorReport(num_images=num_images, stages_s=timed.seconds, floor_s=floor)


def _floor(recipe: Recipe, rows: list[dict[str, Any]]) -> dict[str, float]:
    torch.set_num_threads(1)
    models = make_plan(recipe, device="cpu").models
    images = [decode(row["image"]["bytes"]) for row in rows]
    return {
        "captioner": _captioner(recipe, models, images),
        "proposer": _proposer(recipe, models, images),
        "matcher": _matcher(recipe, models, images, rows),
    }


def _captioner(recipe: Recipe, models: Any, images: list[np.ndarray]) -> float:
    made = TransformersCaptioner(recipe.caption, models["captioner"], "Describe it.")
    inputs = [made.prepare(image) for image in images]

    def run(size: int) -> float:
        started = time.process_time()
        for start in range(0, len(inputs), size):
            made.generate(made.joined(inputs[start : start + size]), seed=0, temperature=0.0)
        return time.process_time() - started

    return _best(run, sizes=(32, 64))


def _proposer(recipe: Recipe, models: Any, images: list[np.ndarray]) -> float:
    made = YolosDetector(recipe.propose, models["proposer"])
    pixels = torch.stack([made.prepare(image) for image in images])

    def run(size: int) -> float:
        started = time.process_time()
        with torch.inference_mode():
            for batch in pixels.split(size):
                made.model(pixel_values=batch)
        return time.process_time() - started

    return _best(run, sizes=(8, 32, 64))


def _matcher(
    recipe: Recipe, models: Any, images: list[np.ndarray], rows: list[dict[str, Any]]
) -> float:
    made = ClipMatcher(recipe.score, models["matcher"])
    boxes = [
        np.array(
            [
                *([r[k] for k in ("x0", "y0", "x1", "y1")] for r in row["regions"]),
                (0, 0, row["width"], row["height"]),
            ]
        )
        for row in rows
    ]
    crops = torch.cat(
        [cut_crops(i, b, made.spec, device="cpu") for i, b in zip(images, boxes, strict=True)]
    )
    sentences = [s["text"] for row in rows for s in row["sentences"]]
    ids = sorted(made.tokenizer.encode_closed(sorted(set(sentences)), context=77), key=len)

    def run(size: int) -> float:
        started = time.process_time()
        for batch in crops.split(size):
            made.embed_inputs(batch).cpu()
        for start in range(0, len(ids), size):
            made.embed_ids(ids[start : start + size]).cpu()
        return time.process_time() - started

    return _best(run, sizes=(32, 128, 256))


def _best(run: Callable[[int], float], *, sizes: tuple[int, ...]) -> float:
    """The quickest batch size's time."""
    return min(run(size) for size in sizes)
