"""Builds, and what tests look at in them."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import shared
from PIL import Image
from random_dataset import WORDS
from rich.console import Console

from glit.inputs.source import Source
from glit.models.clip.random_clip import TINY, write_random_clip
from glit.pipeline.build import BuildRequest, build
from glit.pipeline.executors.local import LocalExecutor
from glit.pipeline.planning.inputs import Inputs
from glit.pipeline.planning.plan import find_models, make_plan
from glit.pipeline.planning.recipe import load_recipe
from glit.pipeline.work.state import sealed
from glit.runtime.progress import StageProgress
from glit.stages import flow
from glit.storage.store import to_json


def with_captions_beside(scenes: Path, folder: Path, number: int) -> Path:
    """A folder of the first scenes, each with a caption in a file of its name."""
    folder.mkdir()
    for each in range(number):
        shutil.copy(scenes / "images" / f"{each:06d}.png", folder)
        (folder / f"{each:06d}.txt").write_text("A red circle. A blue square.")
    return folder


def numbered(scenes: Path, folder: Path, number: int, caption: Callable[[int, str], str]) -> Path:
    """A folder with the first scenes, and beside it the file with what ``caption`` makes of them."""
    folder.mkdir()
    rows = json_lines(scenes / "captions.jsonl")[:number]
    for each, row in enumerate(rows):
        shutil.copy(scenes / "images" / row["path"], folder)
        row["caption"] = caption(each, row["caption"])
    (folder.parent / "captions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


@cache
def tiny() -> tuple[str, ...]:
    """What makes recipe `mini` several times faster: a grid of regions and a random CLIP that is tiny."""
    return "propose.backend=grid", f"score.model={tiny_clip()}"


@cache
def tiny_clip() -> Path:
    """Folder of a CLIPModel with 32-pixel images, 8-pixel patches and 77 text positions."""
    words = {"corpus": [" ".join(WORDS)] * 3, "vocabulary": 700}
    return shared.once("tiny-clip", lambda folder: write_random_clip(folder, TINY, seed=0, **words))


def run_build(
    images,
    output,
    *,
    overrides=(),
    captions=None,
    regions=None,
    recipe="tiny",
    executor=None,
    progress=None,
    **rest,
):
    """One build as the command line does it, silently; by tiny models unless a recipe is named."""
    if recipe == "tiny":
        recipe, overrides = "mini", [*tiny(), *overrides]
    if captions is not None:
        overrides = ["caption.backend=provided", *overrides]
    if regions is not None:
        overrides = ["propose.backend=provided", *overrides]
    request = BuildRequest(
        images=str(images),
        output=str(output),
        recipe=load_recipe(recipe, overrides=overrides),
        captions=None if captions is None else str(captions),
        regions=None if regions is None else str(regions),
        **rest,
    )
    return build(request, executor or LocalExecutor(), progress or quiet())


def plan_of(recipe, *, device="cpu", **inputs):
    """The plan of a build of some folder; ``inputs`` are tables of the user, or a lock."""
    images = Inputs(source=Source(root="images"), **inputs)
    return make_plan(recipe, images, device=device)


def models_of(recipe, *, lock=None):
    """The models of a recipe by role, found on this machine."""
    return find_models(recipe.name, flow(recipe.tables).models(recipe), lock=lock)


def quiet() -> StageProgress:
    return StageProgress(Console(quiet=True), quiet=True)


class Counting(LocalExecutor):
    """Remembers how many units each stage did, and can stop after some."""

    def __init__(self, stop_after: int | None = None):
        self.done: dict[str, int] = {}
        self.left = stop_after

    @property
    def stages(self) -> dict[str, int]:
        """The same without what publishing does."""
        return {n: number for n, number in self.done.items() if n not in ("ledger", "pack")}

    def run_job(self, job):
        def counted(unit, tally):
            name = job.task.name
            self.done[name] = self.done.get(name, 0) + 1
            if self.left is not None:
                self.left -= 1
                if self.left == 0:
                    raise KeyboardInterrupt
            job.on_done(unit, tally)

        super().run_job(replace(job, on_done=counted))


def counts(manifest) -> tuple[int, int, int, int]:
    """Ingested, shipped, dropped and duplicates."""
    c = manifest.counts
    return c.ingested, c.shipped, c.dropped, c.duplicates


def json_lines(path) -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def data_bytes(dataset: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((dataset / "data").iterdir())}


def edit_state(work: Path, change: Callable[[dict], object]) -> None:
    """Change what a build noted of itself, as if it had been noted so."""
    file = work / "state.json"
    content = json.loads(file.read_text())
    content.pop("sha256", None)
    change(content)
    file.write_bytes(to_json(sealed(content)))


def png(pixels: np.ndarray | None = None, *, size=(48, 40), seed=0) -> bytes:
    if pixels is None:
        pixels = np.random.default_rng(seed).integers(0, 255, (size[1], size[0], 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def noise(folder: Path, number: int) -> Path:
    """A new folder of so many pictures of noise: 0.png, 1.png and so on."""
    folder.mkdir()
    for each in range(number):
        (folder / f"{each}.png").write_bytes(png(seed=each))
    return folder


def captions_only(photographs: Path, out: Path, *more: Any, chunk_size: int) -> list[Any]:
    """The words that build a folder's images with the captions file beside the folder."""
    captions = photographs.parent / "captions.jsonl"
    return ["build", photographs, "-o", out, "-r", "captions-only", "--captions", captions,
            "--set", f"ingest.chunk_size={chunk_size}", "--quiet", *more]  # fmt: skip
