"""Build a few images in a separate process and time it, for ``glit doctor``'s estimate.

    python -m glit.doctor.pilot IMAGES OUTPUT RECIPE [table.key=value ...]

prints one line of JSON: seconds of loading and of work by stage, and the rows that came out.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, Self

from rich.console import Console

from glit.errors import GlitError
from glit.executors.local import LocalExecutor
from glit.pipeline.build import BuildRequest, build
from glit.planning.recipe import load_recipe
from glit.runtime.progress import StageProgress

CAPTIONS = "captions.jsonl"
"""The captions file beside the images, for a recipe with provided captions."""


class Clock(StageProgress):
    """Seconds of every stage, with loading counted separately."""

    def __init__(self) -> None:
        super().__init__(Console(quiet=True), quiet=True)
        self.loading_s: dict[str, float] = {}
        self.work_s: dict[str, float] = {}
        self._name = ""
        self._since = time.perf_counter()

    def beside(self) -> Self:
        """Itself: one stage comes after the other here."""
        return self

    def begin(self, stage: str, *, total: int, done: int, drops: bool = True) -> None:
        super().begin(stage, total=total, done=done, drops=drops)
        self.stop()
        self._name = stage

    def ready(self) -> None:
        super().ready()
        now = time.perf_counter()
        self.loading_s[self._name] = now - self._since
        self._since = now

    def stop(self) -> None:
        """The stage is over."""
        now = time.perf_counter()
        if self._name in self.loading_s:
            self.work_s[self._name] = now - self._since
        self._since = now


def main(images: str, output: str, recipe: str, settings: list[str]) -> dict[str, Any]:
    """Build the images and print the times."""
    clock = Clock()
    captions = Path(images) / CAPTIONS
    request = BuildRequest(
        images=images,
        output=output,
        recipe=load_recipe(recipe, overrides=settings),
        captions=str(captions) if captions.exists() else None,
    )
    manifest = build(request, LocalExecutor(), clock)
    clock.stop()
    return {
        "loading_s": clock.loading_s,
        "work_s": clock.work_s,
        "ingested": manifest.counts.ingested,
        "shipped": manifest.counts.shipped,
    }


if __name__ == "__main__":
    try:
        print(json.dumps(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])))
    except GlitError as error:
        sys.exit(str(error).replace(f"{sys.argv[2]}: ", "").replace(f"{sys.argv[1]}/", ""))
