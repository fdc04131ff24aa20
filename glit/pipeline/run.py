"""From a folder of images to a dataset: the stages, resumable at every chunk."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from glit.errors import DamagedTableError, GlitError, InputError, UserError
from glit.executors.protocols import Executor, Job, Tally
from glit.pipeline.build_lock import LockCheck, only_one_build, remove_held
from glit.pipeline.duplicates import forget_duplicates, leave_out_duplicates
from glit.pipeline.listing import Chunk, series_of, write_listing
from glit.pipeline.lock import Lock
from glit.pipeline.plan import make_plan, sidecars
from glit.pipeline.preflight import check_early
from glit.pipeline.previous_build import EarlierListing, finished_already, refuse_others_files
from glit.pipeline.publish import publish
from glit.pipeline.source import (
    Source,
    entries,
    find_source,
    refuse_images_folder,
    skipped_note,
)
from glit.pipeline.stage_task import StageTask, disk_error
from glit.pipeline.status import STATE
from glit.pipeline.timeline import Timed
from glit.pipeline.user_captions import brought_table, prepare
from glit.pipeline.versions import note_versions
from glit.pipeline.work import Work
from glit.runtime.progress import StageProgress
from glit.shards.files import ImageFiles
from glit.stages.dedup import Duplicate
from glit.stages.ingest import IngestConfig
from glit.stages.plan import Plan, Recipe
from glit.storage.outputs import output_folder
from glit.storage.store import Store, absolute, to_json

_REPAIRS = 10
"""Tables found damaged in one run, after which the disk is not to be trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """What the user asked for.

    Raises:
        UserError: the output is a file or no address, or the limit leaves no image.
    """

    images: str
    output: str
    recipe: Recipe
    captions: str | None = None
    limit: int | None = None
    replace: bool = False
    """Rebuild a finished dataset of another recipe in the same folder."""
    lock: Lock | None = None
    """Build with these models and no others."""

    def __post_init__(self) -> None:
        output_folder(self.output)
        if self.limit is not None and self.limit < 1:
            raise UserError(f"limit {self.limit}: want 1 or more images, or None for all")


def build(request: BuildRequest, executor: Executor, progress: StageProgress) -> dict[str, Any]:
    """Build or finish a dataset; its manifest.

    Raises:
        GlitError: see the one line it carries; what is done stays done.
    """
    dataset = Store(request.output)
    source = find_source(request.images)
    refuse_images_folder(request.output, source.root)
    refuse_others_files(dataset)
    images = ImageFiles(source.root, index=dataset.below("work").root)
    work_store = dataset.below("work")
    executor = Timed(executor, work_store)
    with only_one_build(work_store) as still_held, _nothing_left(dataset):
        plan = _plan(request, source, work_store, executor.device)
        work = Work(store=work_store, images=images, plan=plan)
        chunks, finished = _list(request, source, dataset, work, progress)
        _write_state(work, request, source, chunks)
        if finished is not None:
            return finished
        dataset.sweep_folders("", "data")
        if work.missing("ingest", chunks):
            check_early(work, chunks, progress)

        def built() -> dict[str, Any]:
            whole, duplicates = run_stages(work, chunks, executor, progress, still_held)
            return publish(dataset, work, whole, duplicates, executor, progress, still_held)

        return with_table_repair(work, progress, built)


@contextlib.contextmanager
def _nothing_left(dataset: Store) -> Iterator[None]:
    """Of a first build that is refused before its first image, not even its folders stay."""
    try:
        yield
    except GlitError:
        work = dataset.below("work")
        if work.is_local and work.names() <= {".lock"}:
            remove_held(work)
            with contextlib.suppress(OSError):  # something else is in there
                os.rmdir(dataset.full(""))
        raise


def with_table_repair(
    work: Work,
    progress: StageProgress,
    run: Callable[[], dict[str, Any]],
    *,
    before: Callable[[], Any] = lambda: None,
) -> dict[str, Any]:
    """``run()``; a table found damaged is removed, what makes it anew is done ``before`` it runs
    again.

    Raises:
        DamagedTableError: there is no end of them.
    """
    for _ in range(_REPAIRS):
        try:
            return run()
        except DamagedTableError as error:
            progress.note(f"{error.table} is damaged ({error.reason}); it is made anew")
            work.store.remove(error.table)
            forget_duplicates(work)
            before()
    return run()


def _plan(request: BuildRequest, source: Source, work: Store, device: str) -> Plan:
    recipe = request.recipe
    if request.captions is None:
        return make_plan(recipe, device=device, lock=request.lock)
    if recipe.caption.backend != "provided":
        raise UserError(
            f"--captions was given, but recipe {recipe.name!r} has caption.backend = "
            f"{recipe.caption.backend!r}; add --set caption.backend=provided"
        )
    brought = prepare(request.captions, image_root=source.root, work=work)
    return make_plan(recipe, device=device, brought=brought, lock=request.lock)


def _list(
    request: BuildRequest, source: Source, dataset: Store, work: Work, progress: StageProgress
) -> tuple[list[Chunk], dict[str, Any] | None]:
    """The chunks, and the manifest if they are a finished dataset already.

    A listing with additions stays as it is where its images are those that were found. A build
    that is refused leaves the listing of the finished one as it was.
    """
    beside = tuple(sidecars(work.plan.recipe).values())
    skipped: Counter[str] = Counter()
    try:
        with (
            brought_table(work.plan.brought) as captions,
            work.store.atomic("listing.parquet") as target,
        ):
            chunks = write_listing(
                entries(source, sidecars=beside, work=work.store, skipped=skipped),
                target,
                num_beside=len(beside),
                captions=captions,
                chunk_size=work.plan.config(IngestConfig).chunk_size,
                limit=request.limit,
            )
            if not chunks:
                raise InputError(
                    f"{request.images}: no images found (looked for JPEG, PNG, WebP, TIFF, BMP, "
                    "GIF and AVIF files in the folder and below it, then in .tar and .parquet "
                    f"files{'; ' if skipped else ''}{skipped_note(skipped)})"
                )
            if skipped:
                progress.note(skipped_note(skipped))
            earlier = EarlierListing(work.store, target)
            if earlier.is_added_to and not earlier.difference:
                chunks = earlier.keep()
            finished = finished_already(dataset, work, chunks, earlier, replace=request.replace)
            if told := earlier.how_it_differs(chunks):
                progress.note(told)
            return chunks, finished
    except OSError as error:
        raise disk_error(error, work.store.root) from error


def _write_state(work: Work, request: BuildRequest, source: Source, chunks: list[Chunk]) -> None:
    """What ``glit status`` and ``glit retry`` need to know without being told again."""
    state = {
        "images": source.root,
        "captions": None if request.captions is None else absolute(request.captions),
        "recipe": work.plan.recipe.as_dict(),
        "lock": None if request.lock is None else request.lock.models,
        "source": {"pattern": source.pattern, "list_file": source.list_file},
        "folders": {name: work.plan.folder(name) for name in work.plan.flow.tables},
        "num_chunks": len(chunks),
        "additions": len(series_of(chunks)) - 1,
    }
    work.store.write(STATE, to_json(state))


def run_stages(
    work: Work,
    chunks: list[Chunk],
    executor: Executor,
    progress: StageProgress,
    still_held: LockCheck,
) -> tuple[list[Chunk], list[Duplicate]]:
    """Run every stage over the chunks that lack its table."""
    note_versions(work)
    if work.missing("ingest", chunks):
        forget_duplicates(work)
    executor.run([stage_job("ingest", work, chunks, _rows_in(work, chunks), progress, still_held)])
    chunks, duplicates = leave_out_duplicates(work, chunks)
    per_chunk = _rows_in(work, chunks)
    executor.run(
        [
            stage_job(stage, work, chunks, per_chunk, progress, still_held)
            for stage in work.plan.flow.stages
        ]
    )
    return chunks, duplicates


def stage_job(
    stage: str,
    work: Work,
    chunks: list[Chunk],
    per_chunk: Mapping[int, int],
    progress: StageProgress,
    still_held: LockCheck,
) -> Job:
    """A stage over the chunks that lack its table; what later stages made of these is removed.

    Args:
        stage: its name.
        work: the build.
        chunks: all of them.
        per_chunk: images by the chunk's index.
        progress: where to tell of it.
        still_held: raises where another build has taken over.
    """
    missing = work.missing(stage, chunks)
    if missing:
        work.forget_after(stage, missing)
    total = sum(per_chunk.values())
    todo = sum(per_chunk[chunk.index] for chunk in missing)
    told = progress.beside()

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


def _rows_in(work: Work, chunks: list[Chunk]) -> dict[int, int]:
    """Images per chunk, as the listing has them; later stages see a few less."""
    metadata = pq.read_metadata(work.store.for_arrow("listing.parquet"))
    return {
        chunk.index: metadata.row_group(chunk.index).num_rows - len(chunk.skip) for chunk in chunks
    }
