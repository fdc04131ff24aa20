"""``glit add``: add new images without redoing the old ones.

They are listed as chunks after those that are there, so every table that is there stays, and their
samples go into data files of their own. The dataset of before is whole and readable until its
manifest is replaced, which is done last.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from glit.dataset.manifest import MANIFEST, Manifest, SeriesCounts, read_manifest
from glit.errors import InputError, RunError, UserError
from glit.inputs.source import Source
from glit.pipeline.executors.protocols import Executor
from glit.pipeline.preflight import check_early
from glit.pipeline.run import require_finished, run_and_publish
from glit.pipeline.work.finished import (
    in_dataset,
    is_made_of,
    is_whole,
    not_finished,
    read_listing,
)
from glit.pipeline.work.folder import Work
from glit.pipeline.work.listing import Chunk, difference, series_of, write_grown
from glit.pipeline.work.open_work import open_finished
from glit.pipeline.work.scan import images_now
from glit.pipeline.work.state import read_state, update_state
from glit.runtime.limits import Limits
from glit.runtime.progress import StageProgress
from glit.stages.ingest import IngestConfig
from glit.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """The result of an addition."""

    manifest: Manifest
    images: str
    """The folder that was looked at."""
    balance: SeriesCounts | None
    """Counts of the added images; None if there were no new images."""


def add(
    output: str,
    executor: Executor,
    progress: StageProgress,
    *,
    limit: int | None = None,
    limits: Limits | None = None,
) -> Added:
    """The work of :func:`glit.api.add`. Calling it again after it was stopped goes on where that
    was.

    Raises:
        UserError: models or glit changed since the build, or there is nothing finished to add to.
        InputError: the folder of images is gone.
        RunError: see :func:`glit.pipeline.publish.publish`.
    """
    if limit is not None and limit < 1:
        raise UserError(f"limit {limit}: want 1 or more images, or None for all")
    with open_finished(output, executor, progress) as opened:
        dataset, work, store = opened.dataset, opened.work, opened.work.store
        if read_state(store).retry is not None:
            raise RunError(
                f"{dataset.root}: a retry was stopped here; run glit retry, which goes on where it "
                "stopped, then glit add again"
            )
        source = opened.inputs.source
        if "://" not in source.root and not os.path.isdir(source.root):
            raise InputError(
                f"{source.root}: no such folder; the dataset was built from it, so put it there "
                "again, or run glit build --replace with the folder where the images are now, "
                "which reuses what has not changed"
            )
        listed = read_listing(store, wanted_by="add")
        before = in_dataset(dataset, store, listed)
        _check_finished(dataset, work, before)
        chunks = _list(work, source, before, len(listed), limit, progress)
        if len(chunks) == len(before) == len(listed) and _is_untouched(dataset):
            return Added(manifest=read_manifest(dataset), images=source.root, balance=None)
        update_state(store, num_chunks=len(chunks), additions=len(series_of(chunks)) - 1)
        dataset.sweep_folders("", "data")
        if len(chunks) > len(before):
            check_early(work, chunks[len(before) :], progress)
        opened = replace(opened, limits=limits or Limits())
        manifest = run_and_publish(opened, chunks, appending=True)
        balance = manifest.additions[-1] if len(chunks) > len(before) else None
        return Added(manifest=manifest, images=source.root, balance=balance)


def _check_finished(dataset: Store, work: Work, before: list[Chunk]) -> None:
    """See that the work folder is that of the finished dataset, made of these chunks.

    Raises:
        UserError: it is not.
    """
    if not dataset.exists(MANIFEST):  # every table may be there, as after a stopped retry
        require_finished(work, before, wanted_by="add")
        return
    if read_state(work.store).published is None:
        raise UserError(
            f"{work.store.root}: does not tell what the dataset was made of; run glit retry, which "
            "notes it anew, then add"
        )
    if not is_made_of(read_manifest(dataset), work, before):
        raise not_finished(work.store, wanted_by="add")


def _list(
    work: Work,
    source: Source,
    before: list[Chunk],
    num_listed: int,
    limit: int | None,
    progress: StageProgress,
) -> list[Chunk]:
    """All chunks; the listing is written where the folder has grown."""
    with (
        images_now(work.store, work.plan, source) as now,
        work.store.local_copy("listing.parquet") as listing,
    ):
        found = difference(now, listing, before)
        if found.changed or found.gone:
            progress.note(
                f"of the dataset's images {found.changed} changed since the build, or their "
                f"captions or masks did, and {found.gone} went; their samples stay as they were "
                "made"
            )
        new = found.new if limit is None else min(found.new, limit)
        if not new and num_listed == len(before):
            return before
        with work.store.atomic("listing.parquet") as target:
            size = work.plan.config(IngestConfig).chunk_size
            return write_grown(now, listing, target, before, new=new, chunk_size=size)


def _is_untouched(dataset: Store) -> bool:
    """Return whether all files are those of the manifest, and no stopped addition left others
    beside."""
    if not dataset.exists(MANIFEST):
        return False
    manifest = read_manifest(dataset)
    named = {name.removeprefix("data/") for name in manifest.files}
    return is_whole(dataset, manifest) and dataset.names("data") <= named
