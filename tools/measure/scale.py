"""What does not grow: driver memory from a thousand images to many."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

import psutil
from PIL import Image
from rich.console import Console

from glit.bench.random_clip import TINY, write_random_clip
from glit.executors.protocols import Executor
from glit.pipeline.run import BuildRequest, build
from glit.runtime.progress import StageProgress
from glit.stages.recipe import load_recipe


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
