"""Opening the work folder: of a build (lock, plan, listing and state), or of a finished dataset,
as ``glit retry`` and ``glit add`` do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from glit.dataset.manifest import read_manifest
from glit.errors import DamagedTableError, GlitError, InputError, RecipeError, UserError
from glit.executors.protocols import Executor
from glit.inputs.files import ImageFiles
from glit.inputs.source import Source, find_source, refuse_images_folder
from glit.inputs.user_captions import kinds_of, prepare
from glit.inputs.user_regions import prepare_regions
from glit.pipeline.build_lock import LockCheck, only_one_build, remove_held
from glit.pipeline.finished import captions_anew, finished_already, refuse_others_files
from glit.pipeline.listing import Chunk, EarlierListing, write_listing
from glit.pipeline.lock import Lock, lock_of
from glit.pipeline.plan import brings_regions, make_plan, plan_retry
from glit.pipeline.scan import images_now
from glit.pipeline.state import (
    STATE,
    BuildState,
    Retry,
    known_state,
    other_version,
    read_state,
    write_state,
)
from glit.pipeline.timeline import TimelineWriter
from glit.pipeline.work import Work
from glit.recipes.config import is_enabled
from glit.runtime.progress import StageProgress
from glit.stages import flow
from glit.stages.ingest import Ingest, IngestConfig
from glit.stages.plan import Plan, Recipe
from glit.stages.recipe import recipe_of_build
from glit.storage.outputs import output_folder
from glit.storage.store import Store, absolute

_MOST_NAMED = 3
"""How many captions without an image a message names."""
_REPAIRS = 10
"""After so many damaged tables in one run, glit stops: the disk is not to be trusted."""


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
    regions: str | None = None
    limit: int | None = None
    replace: bool = False
    """Rebuild a finished dataset of another recipe in the same folder."""
    lock: Lock | None = None
    """Build with these models and no others."""
    command: tuple[str, ...] = ()
    """The words of the command line that resumes it; none where they are not known."""

    def __post_init__(self) -> None:
        output_folder(self.output)
        if self.limit is not None and self.limit < 1:
            raise UserError(f"limit {self.limit}: want 1 or more images, or None for all")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWork:
    """A dataset, its locked work folder, and the executor and progress that work on it."""

    dataset: Store
    work: Work
    executor: Executor
    progress: StageProgress
    still_held: LockCheck
    """Raises where another build has taken over."""
    timeline: TimelineWriter
    built: Plan | None = None
    """The plan of the build, if the work has that of a retry with settings of its own."""
    _repaired: list[str] = field(default_factory=list)

    def repair(self, error: DamagedTableError) -> None:
        """Remove a damaged table; it is made again when a step needs it.

        Raises:
            DamagedTableError: there is no end of them.
        """
        if len(self._repaired) >= _REPAIRS:
            raise error
        self._repaired.append(error.table)
        self.progress.note(f"{error.table} is damaged ({error.reason}); it is made anew")
        self.work.store.remove(error.table)


@contextlib.contextmanager
def open_build(
    request: BuildRequest, executor: Executor, progress: StageProgress
) -> Iterator[tuple[OpenWork, list[Chunk], dict[str, Any] | None]]:
    """Hold the work folder of a build; its chunks, and the manifest if all is done already.

    Of a first build that is refused before its first image, not even its folders stay.

    Raises:
        GlitError: the build is refused.
    """
    dataset = Store(request.output)
    source = find_source(request.images)
    refuse_images_folder(request.output, source.root)
    refuse_others_files(dataset)
    store = dataset.below("work")
    images = ImageFiles(source.root, index=store.root)
    is_first = dataset.is_local and not dataset.exists("work")
    with only_one_build(store) as still_held:
        try:
            plan, before = _plan(request, source, store, executor.device), known_state(store)
            if told := captions_anew(before, plan):
                progress.note(told)
            retry = None if before is None or before.folders != _folders(plan) else before.retry
            work = Work(store=store, images=images, plan=plan, retry=retry)
            if before is not None and retry is not None:  # it was stopped, and goes on
                lock = lock_of(before, store)
                retried = plan_retry(plan, retry.settings, device=executor.device, lock=lock)
                work = dataclasses.replace(work, plan=retried)
            chunks, finished = _list(request, source, dataset, work, before, progress)
            write_state(store, _state(request, source, plan, retry, chunks, before))
            with TimelineWriter(store) as timeline:
                opened = OpenWork(
                    dataset=dataset,
                    work=work,
                    executor=executor,
                    progress=progress,
                    still_held=still_held,
                    timeline=timeline,
                )
                yield opened, chunks, finished
        except GlitError:
            if is_first and not any(name.startswith(f"{Ingest.name}-") for name in store.names()):
                remove_held(store)
                with contextlib.suppress(OSError):  # something else is in there
                    os.rmdir(dataset.full(""))
            raise


@contextlib.contextmanager
def open_finished(output: str, executor: Executor, progress: StageProgress) -> Iterator[OpenWork]:
    """Hold the work folder of a finished dataset.

    Raises:
        UserError: there is none, or models, prompt or glit are no longer those of the build.
    """
    dataset = Store(output_folder(output))
    store = _work_folder(dataset)
    with only_one_build(store) as still_held, TimelineWriter(store) as timeline:
        yield OpenWork(
            dataset=dataset,
            work=_finished_work(store, executor.device),
            executor=executor,
            progress=progress,
            still_held=still_held,
            timeline=timeline,
        )


def _work_folder(dataset: Store) -> Store:
    work = dataset.below("work")
    if not work.exists(STATE):
        read_manifest(dataset)  # nothing built here at all is the clearer thing to say
        if work.exists("listing.parquet"):
            raise UserError(
                f"{work.root}/{STATE}: it is gone; run glit build again, which writes it anew and "
                "reuses the tables"
            )
        raise UserError(
            f"{dataset.root}: its work folder is gone (glit clean); build it anew instead"
        )
    return work


def _finished_work(store: Store, device: str) -> Work:
    """The work as the folder's state file describes it."""
    state = read_state(store)
    try:
        recipe = recipe_of_build(state.recipe)
    except (RecipeError, KeyError) as error:  # its recipe had other keys
        raise UserError(f"{other_version(store)} ({error})") from error
    stages = flow(recipe.tables).stages
    if set(state.folders) != set(stages):
        raise other_version(store)
    brought = None
    if state.captions is not None:
        brought = prepare(state.captions, image_root=state.images, work=store)
    regions = None
    if state.regions is not None:
        regions = prepare_regions(state.regions, image_root=state.images, work=store)
    plan = make_plan(
        recipe, device=device, brought=brought, regions=regions, lock=lock_of(state, store)
    )
    changed = [name for name in stages if plan.folder(name) != state.folders[name]]
    if changed:
        raise UserError(
            f"{store.root}: models, prompt or glit changed since the build (stage {changed[0]}); "
            "run glit build again instead"
        )
    return Work(store=store, images=ImageFiles(state.images, index=store.root), plan=plan)


def _plan(request: BuildRequest, source: Source, work: Store, device: str) -> Plan:
    recipe = request.recipe
    brought = regions = None
    if request.captions is not None and recipe.caption.backend != "provided":
        raise UserError(
            f"--captions was given, but recipe {recipe.name!r} has caption.backend = "
            f"{recipe.caption.backend!r}; add --set caption.backend=provided"
        )
    if request.regions is not None and not is_enabled(recipe.propose):
        raise UserError(
            f"--regions was given, but recipe {recipe.name!r} has propose.enabled = false; leave "
            "one of the two out"
        )
    if request.regions is not None and not brings_regions(recipe):
        raise UserError(
            f"--regions was given, but recipe {recipe.name!r} has propose.backend = "
            f"{recipe.propose.backend!r}; add --set propose.backend=provided"
        )
    if request.captions is not None:
        brought = prepare(request.captions, image_root=source.root, work=work)
        recipe = _with_kinds(recipe, brought.name, kinds_of(brought))
    if request.regions is not None:
        regions = prepare_regions(request.regions, image_root=source.root, work=work)
    return make_plan(recipe, device=device, brought=brought, regions=regions, lock=request.lock)


def _with_kinds(recipe: Recipe, file: str, found: tuple[str, ...]) -> Recipe:
    """The recipe with the kinds of captions found in the user's file, where it names none.

    Raises:
        InputError: it names one that the file does not have.
    """
    wanted = recipe.caption.kinds
    if missing := [kind for kind in wanted if kind not in found]:
        has = f"those of the kinds {', '.join(found)}" if found else "one caption an image"
        raise InputError(
            f"{file}: caption.kinds wants captions of the kind {missing[0]!r}, the file has {has}"
        )
    caption = dataclasses.replace(recipe.caption, kinds=wanted or found)
    return dataclasses.replace(recipe, tables={**recipe.tables, "caption": caption})


def _list(
    request: BuildRequest,
    source: Source,
    dataset: Store,
    work: Work,
    before: BuildState | None,
    progress: StageProgress,
) -> tuple[list[Chunk], dict[str, Any] | None]:
    """The chunks, and the manifest if they are a finished dataset already.

    A listing with additions stays as it is where its images are those that were found. A build
    that is refused leaves the listing of the finished one as it was.
    """
    size = work.plan.config(IngestConfig).chunk_size
    with (
        images_now(work.store, work.plan, source) as now,
        work.store.atomic("listing.parquet") as target,
    ):
        chunks = write_listing(now, target, chunk_size=size, limit=request.limit)
        if not chunks:
            raise InputError(
                f"{request.images}: no images found (looked for JPEG, PNG, WebP, TIFF, BMP, GIF "
                "and AVIF files in the folder and below it, then in .tar and .parquet files)"
            )
        if before is None and work.plan.brought is not None and work.plan.brought.kinds:
            kinds = ", ".join(work.plan.brought.kinds)
            progress.note(f"{work.plan.brought.name}: captions of the kinds {kinds}")
        given = ((work.plan.brought, now.captions), (work.plan.regions, now.regions))
        for file, table in given if before is None else ():
            if file is None or table is None:
                continue
            stray, first = now.paths_without_image(table, _MOST_NAMED)
            if stray:
                named = ", ".join(first) + (", …" if stray > len(first) else "")
                progress.note(f"{file.name}: no image here for {stray} of its paths: {named}")
        earlier = EarlierListing(work.store, target)
        if earlier.is_added_to and not earlier.difference:
            chunks = earlier.keep()
        replace = request.replace
        finished = finished_already(dataset, work, chunks, earlier, before, replace=replace)
        if told := earlier.how_it_differs(chunks):
            progress.note(told)
        return chunks, finished


def _state(
    request: BuildRequest,
    source: Source,
    plan: Plan,
    retry: Retry | None,
    chunks: list[Chunk],
    before: BuildState | None,
) -> BuildState:
    """The state that ``glit status`` and ``glit retry`` read later. Its recipe has no settings of a
    retry."""
    kept = ("versions", "published", "retries")
    history: Any = {name: getattr(before, name) for name in kept if before is not None}
    return BuildState(
        images=source.root,
        captions=None if request.captions is None else absolute(request.captions),
        regions=None if request.regions is None else absolute(request.regions),
        recipe=plan.recipe.as_dict(),
        lock=None if request.lock is None else request.lock.models,
        source={"pattern": source.pattern, "list_file": source.list_file},
        folders=_folders(plan),
        num_chunks=len(chunks),
        additions=chunks[-1].series,
        retry=retry,
        command=request.command,
        **history,
    )


def _folders(plan: Plan) -> dict[str, str]:
    return {name: plan.folder(name) for name in plan.flow.stages}
