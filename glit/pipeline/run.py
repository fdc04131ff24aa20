"""From a folder of images to a dataset: the stages, resumable at every chunk."""

from __future__ import annotations

from typing import Any

from glit.executors.protocols import Executor
from glit.pipeline.open_build import BuildRequest, open_build
from glit.pipeline.publish import publish
from glit.runtime.progress import StageProgress


def build(request: BuildRequest, executor: Executor, progress: StageProgress) -> dict[str, Any]:
    """Build or finish a dataset; its manifest.

    Raises:
        GlitError: see the one line it carries; what is done stays done.
    """
    with open_build(request, executor, progress) as opened:
        if opened.finished is not None:
            return opened.finished

        def built() -> dict[str, Any]:
            chunks, duplicates = opened.runner.run(opened.chunks)
            return publish(opened.dataset, opened.runner, chunks, duplicates)

        return opened.runner.repairing(built)
