"""Opening the work folder of a finished dataset, as ``glit retry`` and ``glit add`` do."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from glit.dataset.manifest import manifest_before, num_series, read_manifest
from glit.errors import RecipeError, UserError, first_line
from glit.executors.protocols import Executor
from glit.pipeline.build_lock import only_one_build
from glit.pipeline.duplicates import leave_out_duplicates
from glit.pipeline.listing import DAMAGED, Chunk, Found, gathered, read_chunks
from glit.pipeline.lock import Lock
from glit.pipeline.plan import make_plan, read_beside, sidecars
from glit.pipeline.series import identities
from glit.pipeline.source import Source, entries, skipped_note
from glit.pipeline.stage_runner import StageRunner
from glit.pipeline.state import STATE, Retry, other_version, read_state
from glit.pipeline.tables import disk_errors
from glit.pipeline.timeline import Timed
from glit.pipeline.user_captions import prepare
from glit.pipeline.user_regions import prepare_regions
from glit.pipeline.user_tables import brought_table
from glit.pipeline.work import Work
from glit.runtime.progress import StageProgress
from glit.shards.files import ImageFiles
from glit.stages import flow
from glit.stages.recipe import overridden_tables, recipe_from_dict
from glit.storage.outputs import output_folder
from glit.storage.store import Store


@contextlib.contextmanager
def open_finished(
    output: str, executor: Executor, progress: StageProgress
) -> Iterator[StageRunner]:
    """Hold the work folder of a finished dataset.

    Raises:
        UserError: there is none, or models, prompt or glit are no longer those of the build.
    """
    dataset = Store(output_folder(output))
    store = _work_folder(dataset)
    executor = Timed(executor, store)
    with only_one_build(store) as still_held:
        yield StageRunner(
            dataset=dataset,
            work=_finished_work(store, executor.device),
            executor=executor,
            progress=progress,
            still_held=still_held,
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
    """The work that the folder's state tells of."""
    state = read_state(store)
    try:
        recipe = recipe_from_dict(state.recipe)
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
    plan = make_plan(recipe, device=device, brought=brought, regions=regions, lock=lock_of(store))
    changed = [name for name in stages if plan.folder(name) != state.folders[name]]
    if changed:
        raise UserError(
            f"{store.root}: models, prompt or glit changed since the build (stage {changed[0]}); "
            "run glit build again instead"
        )
    return Work(store=store, images=ImageFiles(state.images, index=store.root), plan=plan)


@contextlib.contextmanager
def images_now(work: Work, source: Source) -> Iterator[tuple[Found, str]]:
    """The images of a source as they are now, with the stamps of all that the recipe reads beside
    them; and what to tell of those that are not read.

    Raises:
        RunError: nothing can be written there, of what happens meanwhile too.
    """
    store, skipped = work.store, Counter[str]()
    beside = tuple(sidecars(work.plan.recipe).values())
    with (
        disk_errors(store.root),
        brought_table(work.plan.brought) as captions,
        brought_table(work.plan.regions) as regions,
        gathered(
            entries(source, sidecars=beside, work=store, skipped=skipped),
            Path(store.full("")) if store.is_local else None,
            num_beside=len(beside),
            captions=captions,
            regions=regions,
        ) as found,
    ):
        yield found, skipped_note(skipped)


def with_retry(work: Work, retry: Retry, device: str) -> Work:
    """The same tables in a retry, by its settings.

    Raises:
        UserError: they change more than how a dropped sample is tried.
    """
    if not retry.settings:
        return dataclasses.replace(work, retry=retry)
    settings = retry.settings
    tables = overridden_tables(settings)
    changeable = {step.name for step in work.plan.flow.steps if step.retryable}
    if other := tables.keys() - changeable:
        raise UserError(
            f"--set {min(other)}.…: a retry changes only {', '.join(sorted(changeable))}; the "
            "rest holds for the whole dataset, so build it anew with glit build --set"
        )
    if "near_duplicates" in tables.get("ingest", {}):
        raise UserError(
            "--set ingest.near_duplicates: it decides of all images and not of dropped ones alone; "
            "build it anew with glit build --set"
        )
    if "kinds" in tables.get("caption", {}):
        raise UserError(
            "--set caption.kinds: it decides which columns the dataset has; build it anew with "
            "glit build --set"
        )
    values = work.plan.recipe.as_dict()
    values = {**values, **{name: {**values[name], **table} for name, table in tables.items()}}
    plan = make_plan(
        recipe_from_dict(values),
        device=device,
        brought=work.plan.brought,
        regions=work.plan.regions,
        lock=lock_of(work.store),
    )
    if read_beside(plan.recipe) != read_beside(work.plan.recipe):
        raise UserError(
            f"--set {' '.join(settings)}: reads other files beside the images, which the whole "
            "dataset would have to be made with; build it anew with glit build --set"
        )
    before = {role: model.identity() for role, model in work.plan.models.items()}
    if {role: model.identity() for role, model in plan.models.items()} != before:
        raise UserError(
            f"--set {' '.join(settings)}: another model, which the whole dataset would have to be "
            "made with; build it anew with glit build --set"
        )
    plan = dataclasses.replace(plan, fingerprints=work.plan.fingerprints)
    return dataclasses.replace(work, plan=plan, retry=retry)


def lock_of(store: Store) -> Lock | None:
    """What the build was locked to."""
    locked = read_state(store).lock
    return None if locked is None else Lock(where=f"{store.root}: its lock", models=locked)


def read_listing(store: Store, *, wanted_by: str) -> list[Chunk]:
    """The chunks of a listing.

    Raises:
        UserError: it is gone, or damaged.
    """
    then = f"run glit build again, then {wanted_by}"
    if not store.exists("listing.parquet"):
        raise UserError(f"{store.root}: its listing is gone; {then}")
    try:
        return read_chunks(store.for_arrow("listing.parquet"))
    except DAMAGED as error:
        raise UserError(
            f"{store.root}: its listing is damaged ({first_line(error)}); {then}"
        ) from error


def in_dataset(dataset: Store, work: Store, listed: list[Chunk]) -> list[Chunk]:
    """The chunks that a dataset is made of; an addition that was stopped has listed more.

    Where the manifest is gone, as after a retry that was stopped, they are those of the last one.
    """
    manifest = manifest_before(dataset)
    noted = read_state(work).published
    if manifest is None and not noted:
        return listed
    number = num_series(manifest) if manifest is not None else len(noted or ())
    return [chunk for chunk in listed if chunk.series < number]


def is_made_of(manifest: dict[str, Any], work: Work, listed: list[Chunk]) -> bool:
    """Whether a dataset is of this recipe and these chunks, and not of those that a build with
    ``--replace`` was to bring; where nothing was noted of its images, they are taken for the same.
    """
    if manifest["fingerprints"] != dict(work.plan.fingerprints):
        return False
    noted = read_state(work.store).published
    told = [each.images for each in noted or ()][: num_series(manifest)]
    return noted is None or told == identities(listed)


def complete(work: Work, listed: list[Chunk], *, wanted_by: str) -> list[Chunk]:
    """The chunks with their duplicates known, if every stage has done them all.

    Raises:
        UserError: some stage has not.
    """
    first, *others = work.plan.flow.stages
    if not work.missing(first, listed):
        chunks, _ = leave_out_duplicates(work, listed)
        if not any(work.missing(name, chunks) for name in others):
            return chunks
    raise not_finished(work.store, wanted_by=wanted_by)


def not_finished(work: Store, *, wanted_by: str) -> UserError:
    """What is said where a finished dataset is wanted."""
    return UserError(
        f"{work.root}: the build is not finished; run glit build again first, then {wanted_by}"
    )
