"""What does not grow: driver memory from a thousand images to many, status at a million."""

from __future__ import annotations

import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from PIL import Image
from rich.console import Console

from glit.bench.random_clip import TINY, write_random_clip
from glit.build.listing import Chunk, read_chunks, write_listing
from glit.build.plan import make_plan
from glit.build.run import BuildRequest, build
from glit.build.source import entries, find_source
from glit.build.status import STATE, status
from glit.build.tables import stage_table
from glit.build.work import Work
from glit.executors.protocols import Executor
from glit.parquet import write_parquet
from glit.progress import StageProgress
from glit.recipe import load_recipe
from glit.stages import FLOW, TABLES
from glit.stages.plan import Plan, Recipe
from glit.storage import Store, to_json


class _Peak:
    """The largest resident size of this process while it is open, MB."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.mb = 0.0

    def __enter__(self) -> _Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self.mb = max(self.mb, self._process.memory_info().rss / 2**20)


def driver_memory(counts: list[int], executor: Executor) -> dict[int, float]:
    """Peak resident size of the driver, MB, for builds of these many images.

    Tiny images, grid regions, one short caption each and a tiny CLIP with random weights: the
    driver's part of the work is the same as for large ones. The executor's workers are other
    processes.
    """
    peaks: dict[int, float] = {}
    for number in counts:
        with tempfile.TemporaryDirectory() as folder:
            clip = write_random_clip(
                Path(folder) / "clip", TINY, seed=0, corpus=["A plain square of one colour."]
            )
            recipe = load_recipe(
                "mini",
                overrides=[
                    "caption.backend=sidecar", "propose.backend=grid", f"score.model={clip}",
                ],
            )  # fmt: skip
            images = Path(folder) / "images"
            _tiny_images(images, number)
            request = BuildRequest(images=str(images), output=f"{folder}/out", recipe=recipe)
            with _Peak() as peak:
                build(request, executor, StageProgress(Console(quiet=True), quiet=True))
            peaks[number] = peak.mb
    return peaks


def _tiny_images(folder: Path, number: int) -> None:
    folder.mkdir(parents=True)
    for index in range(number):
        colour = (index % 256, index // 256 % 256, 77)
        Image.new("RGB", (32, 32), colour).save(folder / f"{index:06d}.png", compress_level=1)
        (folder / f"{index:06d}.txt").write_text("A plain square of one colour.")


@dataclass(frozen=True, slots=True, kw_only=True)
class MillionReport:
    """Seconds on the wall for a work folder of ``num_samples``."""

    num_samples: int
    status_s: float
    listing_s: float
    resume_s: float
    """From the command to the first unit handed to a worker, the listing included."""


class _FirstUnit(Exception):
    """Raised when the driver hands out work: the resume is over."""


class _Stops:
    device = "cpu"

    def run(self, task: Any, units: Any, on_done: Any, watch: Any = None) -> None:
        if units:
            raise _FirstUnit

    def close(self) -> None:
        """Nothing to stop."""


def million(num_samples: int) -> MillionReport:
    """Time status and resume on a work folder whose last stage lacks one chunk."""
    recipe = load_recipe("mini", overrides=["propose.backend=grid"])
    with tempfile.TemporaryDirectory() as folder:
        names = Path(folder) / "list.txt"
        names.write_text("".join(f"{i // 1000:04d}/{i:07d}.jpg\n" for i in range(num_samples)))
        output = f"{folder}/out"
        plan = make_plan(recipe, device="cpu")
        listing_s = _fill(Path(output) / "work", str(names), plan, recipe)
        started = time.perf_counter()
        status(output)
        status_s = time.perf_counter() - started
        request = BuildRequest(images=str(names), output=output, recipe=recipe)
        started = time.perf_counter()
        try:
            build(request, _Stops(), StageProgress(Console(quiet=True), quiet=True))
        except _FirstUnit:
            pass
        else:
            raise AssertionError("the resume found nothing to do")
        resume_s = time.perf_counter() - started
    return MillionReport(
        num_samples=num_samples, status_s=status_s, listing_s=listing_s, resume_s=resume_s
    )


def _fill(folder: Path, names: str, plan: Plan, recipe: Recipe) -> float:
    """A work folder as a build leaves it, all tables there but the last one; the listing's time."""
    folder.mkdir(parents=True)
    store = Store(folder)
    source = find_source(names)
    started = time.perf_counter()
    write_listing(entries(source), folder / "listing.parquet", chunk_size=0, limit=None)
    listing_s = time.perf_counter() - started
    work = Work(store=store, images=Store(source.root), plan=plan)
    chunks = read_chunks(folder / "listing.parquet")
    for stage in TABLES:
        _tables(work, stage, chunks if stage != TABLES[-1] else chunks[:-1])
    state = {
        "images": source.root,
        "captions": None,
        "recipe": recipe.as_dict(),
        "folders": {stage: plan.folder(stage) for stage in TABLES},
        "num_chunks": len(chunks),
    }
    store.write(STATE, to_json(state))
    return listing_s


def _tables(work: Work, stage: str, chunks: list[Chunk]) -> None:
    rng = np.random.default_rng(0)
    (folder := Path(work.store.full(work.plan.folder(stage)))).mkdir()
    for chunk in chunks:
        ids = rng.bytes(32 * 256).hex()
        rows = [{"sample_id": ids[64 * i : 64 * i + 64], "source_path": str(i)} for i in range(256)]
        if stage != "ingest":
            rows = [{"sample_id": row["sample_id"]} for row in rows]
        columns = next(step.columns for step in FLOW if step.name == stage)
        write_parquet(stage_table(columns, rows), folder / Path(work.table(stage, chunk)).name)
