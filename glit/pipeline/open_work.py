"""The work folder of a finished dataset: what ``glit retry`` and ``glit add`` begin with."""

from __future__ import annotations

from typing import Any

from glit.dataset.manifest import manifest_before, num_series, read_manifest
from glit.errors import RecipeError, UserError, first_line
from glit.pipeline.duplicates import leave_out_duplicates
from glit.pipeline.listing import DAMAGED, Chunk, read_chunks
from glit.pipeline.lock import Lock
from glit.pipeline.plan import make_plan
from glit.pipeline.published import identities, published
from glit.pipeline.status import STATE, other_version, read_state
from glit.pipeline.user_captions import prepare
from glit.pipeline.work import Work
from glit.shards.files import ImageFiles
from glit.stages import flow
from glit.stages.recipe import recipe_from_dict
from glit.storage.store import Store


def work_folder(dataset: Store) -> Store:
    """The work folder of a dataset.

    Raises:
        UserError: there is none, or no dataset either.
    """
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


def finished_work(store: Store, device: str) -> Work:
    """The work that the folder's state tells of.

    Raises:
        UserError: models, prompt or glit are no longer those of the build.
    """
    state = read_state(store)
    try:
        recipe = recipe_from_dict(state["recipe"])
    except (RecipeError, KeyError) as error:  # its recipe had other keys
        raise UserError(f"{other_version(store)} ({error})") from error
    tables = flow(recipe.tables).tables
    if set(state["folders"]) != set(tables):
        raise UserError(other_version(store))
    brought = None
    if state["captions"] is not None:
        brought = prepare(state["captions"], image_root=state["images"], work=store)
    plan = make_plan(recipe, device=device, brought=brought, lock=lock_of(store))
    changed = [name for name in tables if plan.folder(name) != state["folders"][name]]
    if changed:
        raise UserError(
            f"{store.root}: models, prompt or glit changed since the build (stage {changed[0]}); "
            "run glit build again instead"
        )
    return Work(store=store, images=ImageFiles(state["images"], index=store.root), plan=plan)


def lock_of(store: Store) -> Lock | None:
    """What the build was locked to."""
    locked = read_state(store).get("lock")  # an earlier glit wrote none
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
    noted = published(work)
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
    noted = published(work.store)
    told = [each.images for each in noted or ()][: num_series(manifest)]
    return noted is None or told == identities(listed)


def complete(work: Work, listed: list[Chunk], *, wanted_by: str) -> list[Chunk]:
    """The chunks with their duplicates known, if every stage has done them all.

    Raises:
        UserError: some stage has not.
    """
    if not work.missing("ingest", listed):
        chunks, _ = leave_out_duplicates(work, listed)
        if not any(work.missing(name, chunks) for name in work.plan.flow.tables):
            return chunks
    raise not_finished(work.store, wanted_by=wanted_by)


def not_finished(work: Store, *, wanted_by: str) -> UserError:
    """What is said where a finished dataset is wanted."""
    return UserError(
        f"{work.root}: the build is not finished; run glit build again first, then {wanted_by}"
    )
