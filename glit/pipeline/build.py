"""``glit build``: from a request to a dataset.

The request ends here: :func:`resolve_inputs` reads what it names; all that comes after knows only
that.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from typing import Any

from glit.dataset.manifest import Manifest
from glit.errors import InputError, UserError
from glit.inputs.files import ImageFiles
from glit.inputs.no_images import no_images
from glit.inputs.source import find_source, refuse_images_folder
from glit.pipeline.executors.protocols import Executor
from glit.pipeline.mining_note import note_mining
from glit.pipeline.planning.inputs import Inputs, resolve_inputs
from glit.pipeline.planning.lock import Lock
from glit.pipeline.planning.plan import make_plan, plan_retry
from glit.pipeline.preflight import check_early, check_scenes, note_user_files
from glit.pipeline.run import run_and_publish
from glit.pipeline.work.finished import captions_anew, finished_already, refuse_others_files
from glit.pipeline.work.folder import Work
from glit.pipeline.work.listing import Chunk, new_listing
from glit.pipeline.work.open_work import hold_work
from glit.pipeline.work.state import BuildState, Retry, SourceNames, known_state, write_state
from glit.recipes.toml_tables import with_files
from glit.runtime.limits import Limits
from glit.runtime.progress import StageProgress
from glit.stages.ingest import Ingest
from glit.stages.plan import Plan, Recipe
from glit.storage.outputs import output_folder
from glit.storage.store import Store, absolute


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """The user's request for a build.

    Raises:
        UserError: the output is a file or no address, or the limit leaves no image.
    """

    images: str
    output: str
    recipe: Recipe
    captions: str | None = None
    regions: str | None = None
    limit: int | None = None
    limits: Limits = field(default_factory=Limits)
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


def build(request: BuildRequest, executor: Executor, progress: StageProgress) -> Manifest:
    """Build or finish a dataset, resumable at every chunk; its manifest.

    Raises:
        GlitError: see the one line it carries; what is done stays done.
    """
    dataset, source = Store(request.output), find_source(request.images)
    refuse_images_folder(dataset.root, source.root)
    refuse_others_files(dataset)
    store = dataset.below("work")
    with hold_work(dataset, executor, progress) as open_work:
        recipe, inputs = resolve_inputs(
            request.recipe, source, request.captions, request.regions, request.lock, work=store
        )
        plan = make_plan(recipe, inputs, device=executor.device)
        before = known_state(store)
        if told := captions_anew(before, plan):
            progress.note(told)
        work = _work(store, inputs, plan, before, executor.device)
        with new_listing(store, work.plan, inputs, limit=request.limit) as (chunks, earlier, now):
            if not chunks:
                raise InputError(
                    no_images(source, request.images)
                    + f"; {sum(now.hidden.values())} in hidden folders" * bool(now.hidden)
                )
            if before is None:
                note_user_files(plan, now, progress)
            finished = finished_already(
                dataset, work, chunks, earlier, before, replace=request.replace
            )
            if told := earlier.how_it_differs(chunks):
                progress.note(told)
        write_state(store, _state(request, inputs, plan, work.retry, chunks, before))
        if finished is not None:
            note_mining(progress, (before and before.mining) or {}, recipe)
            return finished
        dataset.sweep_folders("", "data")
        check = check_early if work.missing(Ingest.name, chunks) else check_scenes
        check(work, chunks, progress)
        opened = open_work(inputs, work)
        opened = dataclasses.replace(opened, built=plan, limits=request.limits)
        return run_and_publish(opened, chunks)


def _work(store: Store, inputs: Inputs, plan: Plan, before: BuildState | None, device: str) -> Work:
    """The work by a plan; a retry that was stopped there goes on."""
    work = Work(store=store, images=ImageFiles(inputs.source.root, index=store.root), plan=plan)
    if before is None or before.retry is None or before.folders != plan.folders:
        return work
    plan = plan_retry(plan, inputs, before.retry.settings, device=device)
    return dataclasses.replace(work, plan=plan, retry=before.retry)


def _state(
    request: BuildRequest,
    inputs: Inputs,
    plan: Plan,
    retry: Retry | None,
    chunks: list[Chunk],
    before: BuildState | None,
) -> BuildState:
    """The state that ``glit status`` and ``glit retry`` read later. Its recipe has no settings of a
    retry."""
    kept = ("versions", "published", "retries", "mining")
    history: Any = {name: getattr(before, name) for name in kept if before is not None}
    source = inputs.source
    return BuildState(
        images=source.root,
        captions=None if request.captions is None else absolute(request.captions),
        regions=None if request.regions is None else absolute(request.regions),
        recipe=with_files(plan.recipe.as_dict(), os.path.abspath),
        lock=None if inputs.lock is None else inputs.lock.models,
        source=SourceNames(pattern=source.pattern, list_file=source.list_file),
        folders=plan.folders,
        num_chunks=len(chunks),
        additions=chunks[-1].series,
        retry=retry,
        command=request.command,
        **history,
    )
