"""From a folder of images to a dataset: open the work, run every step, publish."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq

from glit.errors import DamagedTableError
from glit.executors.protocols import Executor, Job, Tally
from glit.pipeline.duplicates import chunks_before, forget_duplicates, leave_out_duplicates
from glit.pipeline.listing import Chunk
from glit.pipeline.open_work import BuildRequest, OpenWork, open_build
from glit.pipeline.preflight import check_early, check_scenes
from glit.pipeline.publish import publish
from glit.pipeline.stage_task import StageTask
from glit.pipeline.state import note_versions
from glit.pipeline.work import Work
from glit.runtime.progress import StageProgress
from glit.stages.dedup import Duplicate
from glit.stages.ingest import Ingest


def build(request: BuildRequest, executor: Executor, progress: StageProgress) -> dict[str, Any]:
    """Build or finish a dataset, resumable at every chunk; its manifest.

    Raises:
        GlitError: see the one line it carries; what is done stays done.
    """
    with open_build(request, executor, progress) as (opened, chunks, finished):
        if finished is not None:
            return finished
        opened.dataset.sweep_folders("", "data")
        if opened.work.missing(Ingest.name, chunks):
            check_early(opened.work, chunks, progress)
        else:
            check_scenes(opened.work, chunks, progress)
        return run_and_publish(opened, chunks)


def run_and_publish(
    opened: OpenWork, chunks: list[Chunk], *, appending: bool = False
) -> dict[str, Any]:
    """Run the stages and publish what they made; the manifest. What is found damaged is made anew.

    Raises:
        GlitError: see :func:`glit.pipeline.publish.publish`; what is done stays done.
    """
    while True:
        try:
            return publish(opened, *run_stages(opened, chunks), appending=appending)
        except DamagedTableError as error:
            opened.repair(error)


def run_stages(opened: OpenWork, chunks: list[Chunk]) -> tuple[list[Chunk], list[Duplicate]]:
    """Run every stage over the chunks that lack its table.

    The first stage reads all of them; then duplicates are left out; then the others run.

    Returns:
        The chunks, which know their duplicates, and these.
    """
    work = opened.work
    note_versions(work.store, work.plan.recipe)
    first, *others = work.plan.flow.stages
    if work.missing(first, chunks):
        forget_duplicates(work)
    opened.execute([_job(opened, first, chunks)])
    chunks, duplicates = leave_out_duplicates(work, chunks)
    if work.retry is not None:
        _move_renamed(work, others, chunks)
    opened.execute([_job(opened, stage, chunks) for stage in others])
    return chunks, duplicates


def _move_renamed(work: Work, stages: list[str], chunks: list[Chunk]) -> None:
    """Move tables aside whose chunk has other duplicates than before the retry, and with them
    another name: most of their rows can stay."""
    for now, before in zip(chunks, chunks_before(work, chunks), strict=True):
        for stage in stages if now.skip != before.skip else ():
            work.move_aside(stage, before)


def _job(opened: OpenWork, stage: str, chunks: list[Chunk]) -> Job:
    """A stage over the chunks that lack its table; what later stages made of them goes."""
    work, still_held = opened.work, opened.still_held
    missing = work.missing(stage, chunks)
    if missing:
        work.forget_after(stage, missing)
    # images as the listing has them; later stages see a few less
    listing = pq.read_metadata(work.store.for_arrow("listing.parquet"))
    per_chunk = {c.index: listing.row_group(c.index).num_rows - len(c.skip) for c in chunks}
    total = sum(per_chunk.values())
    todo = sum(per_chunk[chunk.index] for chunk in missing)
    told = opened.progress.beside()

    def done(chunk: Chunk, tally: Tally) -> None:
        still_held()
        told.finished(chunk, per_chunk[chunk.index], sum(tally.drops.values()))

    return Job(
        task=StageTask(name=stage, work=work),
        units=missing,
        on_done=done,
        after=work.waits_for(stage),
        begin=lambda: told.begin(stage, total=total, done=total - todo),
        watch=told,
    )
