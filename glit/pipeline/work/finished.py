"""Say what a folder holds (a dataset or somebody's files) and what a dataset is made of."""

from __future__ import annotations

from glit.dataset.croissant import CROISSANT
from glit.dataset.manifest import MANIFEST, Manifest, manifest_before, read_manifest
from glit.errors import UserError, first_line
from glit.pipeline.planning.recipe import recipes_differ
from glit.pipeline.work.build_lock import FOLDER as LOCK_FOLDER
from glit.pipeline.work.folder import Work
from glit.pipeline.work.listing import DAMAGED, Chunk, EarlierListing, identities, read_chunks
from glit.pipeline.work.state import STATE, BuildState, read_state
from glit.plain import as_plain
from glit.stages.caption import CaptionStage
from glit.stages.plan import Plan
from glit.storage.store import Store

_FOLDERS = ("data", "work")
_FILES = ("README.md", CROISSANT, "drops.parquet", "duplicates.parquet")
_OF_A_BUILD = (STATE, "listing.parquet", ".lock", LOCK_FOLDER)
"""Files of a started build; at least one of them is in its work folder."""


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
    number = manifest.num_series if manifest is not None else len(noted or ())
    return [chunk for chunk in listed if chunk.series < number]


def is_made_of(manifest: Manifest, work: Work, listed: list[Chunk]) -> bool:
    """Return whether a finished dataset was built from these chunks by this recipe. It was not if a
    build with ``--replace`` stopped before it published. Where the state file does not say which
    images the dataset has, they are taken for the same.
    """
    if manifest.fingerprints != dict(work.plan.fingerprints):
        return False
    noted = read_state(work.store).published
    told = [each.images for each in noted or ()][: manifest.num_series]
    return noted is None or told == identities(listed)


def not_finished(work: Store, *, wanted_by: str) -> UserError:
    """The error for a command that needs a finished dataset."""
    return UserError(
        f"{work.root}: the build is not finished; run glit build again first, then {wanted_by}"
    )


def refuse_others_files(dataset: Store) -> None:
    """Refuse a folder with files that glit did not write.

    Call it before the work folder is locked: the lock is itself a sign of a build.

    Raises:
        UserError: the folder is neither a dataset nor a build, and holds such files.
    """
    if any(map(dataset.exists, (MANIFEST, *(f"work/{name}" for name in _OF_A_BUILD)))):
        return
    here = [name for name in _FOLDERS if dataset.exists(name)]
    taken = [f"{name}/" for name in here if any(True for _ in dataset.below(name).walk())]
    taken += [name for name in _FILES if dataset.exists(name)]
    if taken:
        raise UserError(
            f"{dataset.root}: holds {', '.join(taken)}, which a build would replace, and neither a "
            "dataset nor a build of glit; choose another folder with -o"
        )


def finished_already(
    dataset: Store,
    work: Work,
    chunks: list[Chunk],
    earlier: EarlierListing,
    state: BuildState | None,
    *,
    replace: bool,
) -> Manifest | None:
    """The manifest if the dataset is there already, whole, and built from the same things.

    Args:
        dataset: where it would be.
        work: the build.
        chunks: what it is to be built from.
        earlier: the listing that the work folder has.
        state: what the build before noted, if that is known.
        replace: whether a dataset built otherwise may be replaced.

    Raises:
        UserError: the folder holds a dataset built otherwise.
    """
    noted = None if state is None else state.published
    if not dataset.exists(MANIFEST):
        if not replace:
            _refuse_to_begin_anew(dataset, earlier, num_series=len(noted or ()))
        return None
    manifest = read_manifest(dataset)
    same = manifest.fingerprints == dict(work.plan.fingerprints)
    made_of = [each.images for each in noted or ()]
    if same and made_of == identities(chunks) and len(made_of) == manifest.num_series:
        return manifest if is_whole(dataset, manifest) else None
    if replace:
        return None
    if same and noted is None:
        raise UserError(
            f"{dataset.root}: holds a finished dataset, but its work folder was cleaned, so "
            "whether it is of these images cannot be told; add --replace to build it anew"
        )
    what = "recipe or models" if not same else "images"
    if same:
        how = _how_it_grew(dataset, manifest, made_of, earlier)
    else:
        keys = recipes_differ(as_plain(manifest.recipe), work.plan.recipe)
        how = f"here it would be {keys}; " if keys else ""
    raise UserError(
        f"{dataset.root}: holds a finished dataset of other {what} "
        f"(recipe {manifest.recipe.name!r}); {how}choose another folder with -o, or add "
        "--replace to rebuild it here, reusing what has not changed"
    )


def captions_anew(before: BuildState | None, plan: Plan) -> str:
    """A warning that a model would write existing captions again; empty if it would not."""
    written = CaptionStage.backend(plan.recipe.caption).reads == "pixels"
    name = CaptionStage.name
    if before is None or not written or before.folders.get(name) in (None, plan.folder(name)):
        return ""
    how = recipes_differ(before.recipe, plan.recipe) or "a model, the prompt or glit"
    return (
        f"captions are written anew, as another recipe made those here: {how}; to keep them, stop "
        "and run it with the settings of then"
    )


def _refuse_to_begin_anew(dataset: Store, earlier: EarlierListing, *, num_series: int) -> None:
    """A dataset that was added to is not made anew because a folder has changed.

    Raises:
        UserError: that would happen.
    """
    if earlier.is_added_to and earlier.difference:
        raise UserError(
            f"{dataset.root}: images were added to this dataset, and its files were being replaced "
            f"when that was stopped; {earlier.difference}. Run glit retry, which finishes it as it "
            "was, or add --replace to make everything anew"
        )
    if num_series > 1 and not (earlier.num_series and earlier.chunks):
        raise UserError(
            f"{dataset.root}: images were added to this dataset, and its files were being replaced "
            "when that was stopped; its listing is gone or damaged since, so nothing tells in "
            "which order they came; add --replace to make everything anew"
        )


def _how_it_grew(
    dataset: Store, manifest: Manifest, made_of: list[str], earlier: EarlierListing
) -> str:
    """Advice for a user whose folder of images differs from the one that the dataset was built
    from; empty if the listing of then is lost.

    Raises:
        UserError: an addition has begun, and is to be finished first.
    """
    told = manifest.num_series
    if earlier.num_series < told or identities(earlier.chunks)[:told] != made_of[:told]:
        return ""
    if earlier.num_series > told:
        raise UserError(
            f"{dataset.root}: images are being added to this dataset; run glit add again, which "
            "goes on where it stopped"
        )
    takes_in = "glit add takes in the new ones; or " if earlier.difference.new else ""
    return f"{earlier.difference}. {takes_in}"


def is_whole(dataset: Store, manifest: Manifest) -> bool:
    """Return whether every file of the manifest is there with its size; none is read."""
    return all(dataset.entry(name).size == each.bytes for name, each in manifest.files.items())
