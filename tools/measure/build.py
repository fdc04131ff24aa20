"""How fast a build is: ``python -m tools.measure.build -o OUT``.

Measures the whole build of scenes against the same models on ready-made tensors, in one thread.
``glit bench lism-flism`` compares propose and score with the published way.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from rich.console import Console

from glit.bench.harness import Row
from glit.images import decode
from glit.inputs.source import Source
from glit.models.backends.captioners.transformers_generate import TransformersCaptioner
from glit.models.backends.matchers.clip import ClipMatcher
from glit.models.backends.proposers.yolos import YolosDetector
from glit.pipeline.build import BuildRequest, build
from glit.pipeline.executors.local import to_its_end
from glit.pipeline.executors.process import prepare_own_process
from glit.pipeline.executors.protocols import Job
from glit.pipeline.planning.inputs import Inputs
from glit.pipeline.planning.plan import make_plan
from glit.pipeline.planning.recipe import load_recipe
from glit.runtime.progress import StageProgress
from glit.scenes import write_scenes
from glit.stages.plan import Recipe
from tools.measure.clock import printed, seconds

_CORNERS = ("x0", "y0", "x1", "y1")


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m tools.measure.build", description=__doc__)
    parser.add_argument("--scenes", type=int, default=1000)
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/bench"))
    arguments = parser.parse_args()
    prepare_own_process(for_model=True)
    printed(floor(arguments.scenes), arguments.output / "floor.json")


class Timed:
    """The local executor with the CPU time of each task's units, its opening apart."""

    device = "cpu"
    size = (1, 0)

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def run(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            job.begin()
            worker = job.task.open(2)
            started = time.process_time()
            try:
                for unit in job.units:
                    job.on_done(unit, to_its_end(worker.run(unit, {}), lambda _: None))
            finally:
                self.seconds[job.task.name] = time.process_time() - started

    def close(self) -> None:
        """Nothing to stop."""


def floor(num: int) -> Iterator[Row]:
    """Build scenes with ``mini``, then run its models on the tensors of the same scenes."""
    on = [f"{table}.device=cpu" for table in ("caption", "propose", "score")]
    recipe, timed = load_recipe("mini", overrides=on), Timed()
    silent = StageProgress(Console(quiet=True), quiet=True)
    with tempfile.TemporaryDirectory() as folder:
        write_scenes(Path(folder) / "scenes", num=num, seed=2_500_000)
        images, output = f"{folder}/scenes/images", f"{folder}/dataset"
        build(BuildRequest(images=images, output=output, recipe=recipe), timed, silent)
        rows = pq.read_table(f"{output}/data").to_pylist()
    bare = _floor(recipe, rows)
    ratio = sum(timed.seconds.values()) / sum(bare.values())
    yield {"stages_s": timed.seconds, "floor_s": bare, "ratio": ratio, "num_images": len(rows)}


def _floor(recipe: Recipe, rows: list[dict[str, Any]]) -> dict[str, float]:
    """CPU seconds of the models alone, each with the batch size that suits it best."""
    torch.set_num_threads(1)
    inputs = Inputs(source=Source(root="images"))
    models = make_plan(recipe, inputs, device="cpu").models
    images = [decode(row["image"]["bytes"]) for row in rows]
    captioner = TransformersCaptioner(recipe.caption, models["captioner"], "Describe it.")
    inputs = [captioner.prepare(image) for image in images]

    def captions(size: int) -> None:
        for some in _cut(inputs, size):
            captioner.generate(captioner.joined(some), seed=0, temperature=0.0)

    proposer = YolosDetector(recipe.propose, models["proposer"])
    pixels = torch.stack([proposer.prepare(image) for image in images])

    def boxes(size: int) -> None:
        with torch.inference_mode():
            for batch in pixels.split(size):
                proposer.model(pixel_values=batch)

    matcher = ClipMatcher(recipe.score, models["matcher"])
    places = [
        np.array([*([r[k] for k in _CORNERS] for r in row["regions"]), _whole(row)]) for row in rows
    ]
    encoder, spec = matcher.encoder, matcher.preprocessing
    cut = [encoder.cut(image, boxes, spec) for image, boxes in zip(images, places, strict=True)]
    regions = torch.cat(cut)
    sentences = sorted({s["text"] for row in rows for s in row["sentences"]})
    ids = sorted(matcher.tokenizer.encode_closed(sentences, context=77), key=len)

    def embeddings(size: int) -> None:
        for batch in regions.split(size):
            encoder.embed_crops(batch).cpu()
        for some in _cut(ids, size):
            matcher.embed_ids(some).cpu()

    return {
        "captioner": _best(captions, (32, 64)),
        "proposer": _best(boxes, (8, 32, 64)),
        "matcher": _best(embeddings, (32, 128, 256)),
    }


def _whole(row: dict[str, Any]) -> tuple[float, ...]:
    return 0, 0, row["width"], row["height"]


def _cut(items: list[Any], size: int) -> Iterator[list[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _best(work: Callable[[int], None], sizes: tuple[int, ...]) -> float:
    return min(seconds(lambda size=size: work(size))[1] for size in sizes)


if __name__ == "__main__":
    main()
