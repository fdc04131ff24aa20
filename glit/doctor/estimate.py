"""Estimate the time of recipes: each builds a few images in its own process."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from glit.doctor.inputs import BuildImages
from glit.images import IMAGE_SUFFIXES
from glit.inputs.files import ImageFiles
from glit.pipeline.work.timeline import read_timelines
from glit.runtime.cores import usable_cores
from glit.runtime.progress import duration
from glit.stages import flow
from glit.stages.plan import Recipe
from glit.storage.members import stem
from glit.storage.store import Store

_CAPTIONS = "captions.jsonl"
PILOT_IMAGES = 8
PILOT_S = 180
"""A recipe that has not finished its images by then is not measured: nobody knows how much of it
was loading."""
_STAND_IN = (
    "A wide view with several things in it stands before a plain background. On the left there is "
    "something large, and its edge is in shadow. Beside it lies a smaller object with a bright "
    "surface. In the middle two people look towards the camera. Behind them a wall rises, painted "
    "in one colour. On the right a table holds a few items that are hard to tell apart. The light "
    "falls from above and leaves soft shadows. The whole looks calm and ordered."
)
"""For recipes that take the user's captions, of which there may be none yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The estimated speed of a recipe."""

    recipe: str
    seconds: float | None
    """An image, by one worker, models loaded; None where it was not measured."""
    loading_s: float
    """Once: the start, and all models of the recipe."""
    workers: int
    """On this machine: a processor's cores share images out, a GPU is counted as one worker."""
    why_not: str = ""

    def hours(self, images: int) -> float | None:
        """Hours for a number of images, with all workers."""
        if self.seconds is None:
            return None
        return (self.loading_s + self.seconds * images / self.workers) / 3600

    def line(self, images: int) -> str:
        """The estimate as a line of text."""
        if self.seconds is None:
            return f"not measured: {self.why_not}"
        hours = self.hours(images)
        assert hours is not None
        with_workers = f" with {self.workers} workers" if self.workers > 1 else ""
        return f"{self.seconds:.2g} s an image; {duration(hours * 3600)} for {images}{with_workers}"


def pace(
    images: BuildImages, recipe: Recipe, name: str, settings: list[str], *, device: str
) -> Pace:
    """Build a few images with a recipe and measure its speed.

    Args:
        images: whose sample is taken.
        recipe: the recipe.
        name: the recipe's name or path.
        settings: of ``--set``.
        device: the best one here.
    """
    workers = usable_cores() if device == "cpu" else 1
    if suffixes := flow(recipe.tables).suffixes(recipe):
        why = f"it wants NAME{next(iter(suffixes.values()))} beside every image"
        return Pace(recipe=name, seconds=None, loading_s=0, workers=workers, why_not=why)
    sample = images.decoded[:PILOT_IMAGES]
    with tempfile.TemporaryDirectory(prefix="glit-doctor-") as folder:
        inside = Path(folder) / "images"
        inside.mkdir()
        store = ImageFiles(images.source.root)
        names = [f"{i}{_suffix(each.path)}" for i, each in enumerate(sample)]
        for each, file in zip(sample, names, strict=True):
            (inside / file).write_bytes(store.read(each.path))
        if recipe.caption.backend == "provided":
            rows = [json.dumps({"path": file, "caption": _STAND_IN}) for file in names]
            (inside / _CAPTIONS).write_text("\n".join(rows) + "\n")
        found = _timed(inside, f"{folder}/dataset", name, settings)
    if isinstance(found, str):
        return Pace(recipe=name, seconds=None, loading_s=0, workers=workers, why_not=found)
    loading_s, work_s = found
    return Pace(recipe=name, seconds=work_s / len(sample), loading_s=loading_s, workers=workers)


def _suffix(path: str) -> str:
    """Return the suffix of an image; ``.png`` for another path, as rows of tables have none."""
    found = path.removeprefix(stem(path)).lower()
    return found if found in IMAGE_SUFFIXES else ".png"


def _timed(
    images: Path, output: str, recipe: str, settings: list[str]
) -> tuple[float, float] | str:
    """Build images in a process of its own: the seconds in which nothing but loading was done, and
    those of work, by the build's own timeline; or why there are none."""
    captions = images / _CAPTIONS
    words = [str(images), "-o", output, "-r", recipe, "--executor", "local", "--quiet"]
    words += [word for setting in settings for word in ("--set", setting)]
    words += ["--captions", str(captions)] if captions.exists() else []
    started = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "glit", "build", *words],
            capture_output=True, text=True, timeout=PILOT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"its images were not done after {PILOT_S:g} s, loading of its models included"
    seconds, runs = time.perf_counter() - started, read_timelines(Store(output).below("work"))
    if done.returncode == 0 and runs:
        work_s = sum(sum(stage.busy_s) for stage in runs[-1].stages.values())
        return max(0.0, seconds - work_s), work_s
    if done.returncode < 0:
        return f"its process was killed (signal {-done.returncode}); is memory short?"
    lines = done.stderr.strip().splitlines() or ["it failed"]
    return lines[-1].removeprefix("glit: ").replace(f"{output}: ", "").replace(f"{images}/", "")
