"""From a folder of images to a dataset: the stages, resumable at every chunk."""

from __future__ import annotations

from typing import Any

from glit.executors.protocols import Executor
from glit.pipeline.open_build import BuildRequest, open_build
from glit.pipeline.publish import run_and_publish
from glit.runtime.progress import StageProgress


def build(request: BuildRequest, executor: Executor, progress: StageProgress) -> dict[str, Any]:
    """Build or finish a dataset; its manifest.

    Raises:
        GlitError: see the one line it carries; what is done stays done.
    """
    with open_build(request, executor, progress) as (runner, chunks, finished):
        return run_and_publish(runner, chunks) if finished is None else finished
