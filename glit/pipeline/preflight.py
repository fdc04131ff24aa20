"""What is looked at before the first image is read, so that no caption is paid for in vain."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.parquet as pq

from glit.errors import InputError, UserError
from glit.pipeline.listing import NOT_THERE, Chunk
from glit.pipeline.plan import read_beside, sidecars
from glit.pipeline.work import Work
from glit.runtime.progress import StageProgress, size
from glit.shards.files import MOST_BYTES
from glit.stages.pack import PackConfig

_ROWS = 65_536


def check_early(work: Work, chunks: Sequence[Chunk], progress: StageProgress) -> None:
    """Refuse a build that would fail after its captions; the listing must be there.

    Args:
        work: the build.
        chunks: those whose images have not been looked at yet.
        progress: whom to tell of what is doubtful.

    Raises:
        UserError: a server does not answer, or the disk is far too small for the dataset.
        InputError: a step reads files beside the images, and no image has one.
    """
    for step in work.plan.flow.steps:
        config = work.plan.configs[step.name]
        backend = step.backend(config)
        if backend is not None and backend.reach is not None:
            backend.reach(config)
    kinds = list(sidecars(work.plan.recipe).items())
    images, num_bytes, missing = _in_listing(
        work, chunks, len(kinds), of=len(read_beside(work.plan.recipe))
    )
    for (step, suffix), without in zip(kinds, missing, strict=True):
        _check_beside(work, step, suffix, without, images, progress)
    _check_room(work, num_bytes, progress)


def _in_listing(
    work: Work, chunks: Sequence[Chunk], num_kinds: int, *, of: int
) -> tuple[int, int, list[int]]:
    """Images of these chunks, their bytes, and for each of the first kinds of what is read beside
    them how many of them have none."""
    images = num_bytes = 0
    missing = [0] * num_kinds
    with pq.ParquetFile(work.store.for_arrow("listing.parquet")) as file:
        groups = [chunk.index for chunk in chunks]
        for batch in file.iter_batches(_ROWS, row_groups=groups, columns=["size", "beside"]):
            images += len(batch)
            sizes = batch.column("size").to_numpy()
            num_bytes += int(sizes[(sizes > 0) & (sizes <= MOST_BYTES)].sum())
            stamps = batch.column("beside").flatten().to_numpy(zero_copy_only=False)
            for kind in range(num_kinds):
                missing[kind] += int((stamps[kind::of] == NOT_THERE).sum())
    return images, num_bytes, missing


def _check_beside(
    work: Work, step: str, suffix: str, without: int, images: int, progress: StageProgress
) -> None:
    if step == "caption" or not without:  # captions that are not there are found at once
        return
    backend = f"{step}.backend = {work.plan.recipe.tables[step].backend!r}"
    if without == images:
        raise InputError(
            f"{work.images.root}: {backend} reads NAME{suffix} beside NAME.jpg, and none of the "
            f"{images} images has one; put the files there, or choose another backend"
        )
    progress.note(
        f"{without} of {images} images have no NAME{suffix}, which {backend} reads; they will be "
        "dropped"
    )


def _check_room(work: Work, num_bytes: int, progress: StageProgress) -> None:
    """The data files hold the images as they are, unless they are left out or made smaller."""
    config = work.plan.config(PackConfig)
    free = work.store.free_bytes()
    if free is None or config.image_store != "bytes" or config.max_side or free >= num_bytes:
        return
    told = (
        f"{work.store.root}: {size(free)} free, but the images to be stored have {size(num_bytes)}"
    )
    if free >= num_bytes / 2:  # many may be dropped or repeat others
        progress.note(f"{told}; the disk may become full")
        return
    raise UserError(
        f"{told}; choose another disk with -o, or --set pack.image_store=path, which leaves images "
        "where they are"
    )
