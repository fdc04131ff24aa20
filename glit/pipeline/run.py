"""From a folder of images to a dataset: the lock, the plan, the listing, then the stages."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from glit.backends.captioners.user_captions import BroughtCaptions
from glit.dataset.croissant import CROISSANT
from glit.dataset.manifest import MANIFEST, num_series, read_manifest
from glit.errors import GlitError, InputError, UserError
from glit.executors.protocols import Executor
from glit.pipeline.build_lock import FOLDER as LOCK_FOLDER
from glit.pipeline.build_lock import only_one_build, remove_held
from glit.pipeline.listing import Chunk, EarlierListing, series_of, write_listing
from glit.pipeline.lock import Lock
from glit.pipeline.open_work import images_now, with_retry
from glit.pipeline.plan import brings_regions, make_plan
from glit.pipeline.preflight import check_early, check_scenes
from glit.pipeline.publish import run_and_publish
from glit.pipeline.series import identities
from glit.pipeline.source import Source, find_source, refuse_images_folder
from glit.pipeline.stage_runner import StageRunner
from glit.pipeline.state import STATE, BuildState, known_state, write_state
from glit.pipeline.timeline import Timed
from glit.pipeline.user_captions import kinds_of, prepare
from glit.pipeline.user_regions import prepare_regions
from glit.pipeline.work import Work
from glit.runtime.progress import StageProgress
from glit.shards.files import ImageFiles
from glit.stages.ingest import Ingest, IngestConfig
from glit.stages.plan import Plan, Recipe
from glit.storage.outputs import output_folder
from glit.storage.store import Store, absolute

_MOST_NAMED = 3
"""Paths of captions without an image that are told."""
_FOLDERS = ("data", "work")
_FILES = ("README.md", CROISSANT, "drops.parquet", "duplicates.parquet")
_OF_A_BUILD = (STATE, "listing.parquet", ".lock", LOCK_FOLDER)
"""What a build that has begun has in its work folder, one of them at least."""


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


def build(request: BuildRequest, executor: Executor, progress: StageProgress) -> dict[str, Any]:
    """Build or finish a dataset, resumable at every chunk; its manifest.

    Raises:
        GlitError: see the one line it carries; what is done stays done.
    """
    dataset = Store(request.output)
    source = find_source(request.images)
    refuse_images_folder(request.output, source.root)
    refuse_others_files(dataset)
    store = dataset.below("work")
    images = ImageFiles(source.root, index=store.root)
    executor = Timed(executor, store)
    is_first = dataset.is_local and not dataset.exists("work")
    with only_one_build(store) as still_held, _nothing_left(dataset, is_first=is_first):
        plan = _plan(request, source, store, executor.device)
        before = known_state(store)
        work = _going_on(Work(store=store, images=images, plan=plan), before, executor.device)
        chunks, finished = _list(request, source, dataset, work, before, progress)
        _write_state(work, request, source, chunks, before)
        if finished is not None:
            return finished
        dataset.sweep_folders("", "data")
        if work.missing(Ingest.name, chunks):
            check_early(work, chunks, progress)
        else:
            check_scenes(work, chunks, progress)
        runner = StageRunner(
            dataset=dataset,
            work=work,
            executor=executor,
            progress=progress,
            still_held=still_held,
        )
        return run_and_publish(runner, chunks)


def _going_on(work: Work, before: BuildState | None, device: str) -> Work:
    """The work with the retry that was stopped in it, if it is of the same plan."""
    if before is None or before.retry is None or before.folders != _folders(work.plan):
        return work
    return with_retry(work, before.retry, device)


def _folders(plan: Plan) -> dict[str, str]:
    return {name: plan.folder(name) for name in plan.flow.stages}


@contextlib.contextmanager
def _nothing_left(dataset: Store, *, is_first: bool) -> Iterator[None]:
    """Of a first build that is refused before its first image, not even its folders stay."""
    try:
        yield
    except GlitError:
        work = dataset.below("work")
        begun = is_first and any(name.startswith(f"{Ingest.name}-") for name in work.names())
        if is_first and not begun:
            remove_held(work)
            with contextlib.suppress(OSError):  # something else is in there
                os.rmdir(dataset.full(""))
        raise


def _plan(request: BuildRequest, source: Source, work: Store, device: str) -> Plan:
    recipe = request.recipe
    brought = regions = None
    if request.captions is not None and recipe.caption.backend != "provided":
        raise UserError(
            f"--captions was given, but recipe {recipe.name!r} has caption.backend = "
            f"{recipe.caption.backend!r}; add --set caption.backend=provided"
        )
    if request.regions is not None and not brings_regions(recipe):
        raise UserError(
            f"--regions was given, but recipe {recipe.name!r} has propose.backend = "
            f"{recipe.propose.backend!r}; add --set propose.backend=provided"
        )
    if request.captions is not None:
        brought = prepare(request.captions, image_root=source.root, work=work)
        recipe = _with_kinds(recipe, brought)
    if request.regions is not None:
        regions = prepare_regions(request.regions, image_root=source.root, work=work)
    return make_plan(recipe, device=device, brought=brought, regions=regions, lock=request.lock)


def _with_kinds(recipe: Recipe, brought: BroughtCaptions) -> Recipe:
    """The recipe with the kinds of captions that the user's file has, where it names none.

    Raises:
        InputError: it names one that the file does not have.
    """
    found, wanted = kinds_of(brought), recipe.caption.kinds
    if missing := [kind for kind in wanted if kind not in found]:
        has = f"those of the kinds {', '.join(found)}" if found else "one caption an image"
        raise InputError(
            f"{brought.name}: caption.kinds wants captions of the kind {missing[0]!r}, the file "
            f"has {has}"
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
        images_now(work, source) as (now, not_read),
        work.store.atomic("listing.parquet") as target,
    ):
        chunks = write_listing(now, target, chunk_size=size, limit=request.limit)
        if not chunks:
            raise InputError(
                f"{request.images}: no images found (looked for JPEG, PNG, WebP, TIFF, BMP, GIF "
                "and AVIF files in the folder and below it, then in .tar and .parquet files"
                f"{'; ' if not_read else ''}{not_read})"
            )
        if not_read:
            progress.note(not_read)
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


def _write_state(
    work: Work,
    request: BuildRequest,
    source: Source,
    chunks: list[Chunk],
    before: BuildState | None,
) -> None:
    """What ``glit status`` and ``glit retry`` need to know without being told again."""
    kept = ("versions", "published", "retries")
    history: Any = {name: getattr(before, name) for name in kept if before is not None}
    state = BuildState(
        images=source.root,
        captions=None if request.captions is None else absolute(request.captions),
        regions=None if request.regions is None else absolute(request.regions),
        recipe=work.plan.recipe.as_dict(),
        lock=None if request.lock is None else request.lock.models,
        source={"pattern": source.pattern, "list_file": source.list_file},
        folders=_folders(work.plan),
        num_chunks=len(chunks),
        additions=len(series_of(chunks)) - 1,
        retry=work.retry,
        command=request.command,
        **history,
    )
    write_state(work.store, state)


def refuse_others_files(dataset: Store) -> None:
    """See that a build puts nothing in the place of files that are not glit's; to be called before
    the work folder is held, which is a sign of a build.

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
) -> dict[str, Any] | None:
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
    same = manifest["fingerprints"] == dict(work.plan.fingerprints)
    made_of = [each.images for each in noted or ()]
    if same and made_of == identities(chunks) and len(made_of) == num_series(manifest):
        return manifest if is_whole(dataset, manifest) else None
    if replace:
        return None
    if same and noted is None:
        raise UserError(
            f"{dataset.root}: holds a finished dataset, but its work folder was cleaned, so "
            "whether it is of these images cannot be told; add --replace to build it anew"
        )
    what = "recipe or models" if not same else "images"
    how = _how_it_grew(dataset, manifest, made_of, earlier) if same else ""
    raise UserError(
        f"{dataset.root}: holds a finished dataset of other {what} "
        f"(recipe {manifest['recipe']['name']!r}); {how}choose another folder with -o, or add "
        "--replace to rebuild it here, reusing what has not changed"
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
    dataset: Store, manifest: dict[str, Any], made_of: list[str], earlier: EarlierListing
) -> str:
    """What to do about a folder that differs from that of the dataset; empty where its listing is
    not there.

    Raises:
        UserError: an addition has begun, and is to be finished first.
    """
    told = num_series(manifest)
    if earlier.num_series < told or identities(earlier.chunks)[:told] != made_of[:told]:
        return ""
    if earlier.num_series > told:
        raise UserError(
            f"{dataset.root}: images are being added to this dataset; run glit add again, which "
            "goes on where it stopped"
        )
    takes_in = "glit add takes in the new ones; or " if earlier.difference.new else ""
    return f"{earlier.difference}. {takes_in}"


def is_whole(dataset: Store, manifest: dict[str, Any]) -> bool:
    """Whether every file of the manifest is there with its size; ``glit verify`` reads them."""
    return all(
        dataset.entry(name).size == found["bytes"] for name, found in manifest["files"].items()
    )
