"""Check a build before the first image is read, so that no caption is paid for in vain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice, zip_longest
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from glit.data.bounded_parquet import BoundedParquet
from glit.dataset.mini_models import LOOKED_AT, meaningless
from glit.errors import InputError, UserError
from glit.images import ImageError, Pixels, decode
from glit.inputs.files import MOST_BYTES
from glit.inputs.source import hidden_note
from glit.inputs.user_tables import brought_table
from glit.models.backends.base import ModelConfig
from glit.pipeline.work.folder import Work
from glit.pipeline.work.listing import Chunk, open_listing, read_chunk
from glit.pipeline.work.scan import NOT_THERE, ScannedFiles
from glit.runtime.cores import usable_cores
from glit.runtime.progress import StageProgress, duration, size
from glit.stages.caption import CaptionStage
from glit.stages.ingest import IngestConfig
from glit.stages.pack import PackConfig
from glit.stages.plan import Plan
from glit.storage.store import Entry

_ROWS = 65_536
_PHRASES = r'"phrases": \[[^\]]'
_NAMED = r'"(?:sentences|phrases)": \[[^\]]'
_MOST_NAMED = 3
"""Most captions without an image that a message names."""


def note_user_files(plan: Plan, now: ScannedFiles, progress: StageProgress) -> None:
    """Say what kinds of captions the user's file has, which of its paths no image has, and how many
    images were passed over."""
    if now.hidden:
        progress.note(hidden_note(now.hidden))
    if plan.brought is not None and plan.brought.kinds:
        kinds = ", ".join(plan.brought.kinds)
        progress.note(f"{plan.brought.name}: captions of the kinds {kinds}")
    for file, table in ((plan.brought, now.captions), (plan.regions, now.regions)):
        if file is None or table is None:
            continue
        stray, first = now.paths_without_image(table, _MOST_NAMED)
        if stray:
            named = ", ".join(first) + (", …" if stray > len(first) else "")
            progress.note(f"{file.name}: no image here for {stray} of its paths: {named}")
    _note_no_pairs(plan, progress)
    if plan.regions is not None and "ground" not in plan.flow.stages:
        with brought_table(plan.regions) as table:
            rows = 0 if table is None else _matching(table, _PHRASES)
        if rows:
            progress.note(
                f"{plan.regions.name}: the phrases of {rows} rows are left out; --set "
                "ground.enabled=true keeps them"
            )


def _note_no_pairs(plan: Plan, progress: StageProgress) -> None:
    """Say that the user's regions will be in no pair, if none of them names a sentence."""
    if plan.regions is None or "score" not in plan.flow.stages:
        return
    if getattr(plan.recipe.score, "backend", "") != "provided":
        return
    with brought_table(plan.regions) as table:
        if table is not None and not _matching(table, _NAMED):
            progress.note(
                f"{plan.regions.name}: no row names a sentence or a phrase, so no sentence will "
                "have a region; add the key 'sentences', or let a model choose: -r captions "
                "--regions FILE"
            )


def _matching(table: Path, pattern: str) -> int:
    """Count the rows of a table of regions whose text has a pattern."""
    with BoundedParquet(table) as file:
        found = (
            pc.match_substring_regex(batch["region"], pattern)  # pyright: ignore[reportAttributeAccessIssue]
            for batch in file.iter_batches(columns=["region"])
        )
        return sum(each.true_count for each in found)


def check_early(work: Work, chunks: Sequence[Chunk], progress: StageProgress) -> None:
    """Refuse a build that would fail after its captions; the listing must be there.

    Args:
        work: the build.
        chunks: those whose images have not been looked at yet.
        progress: whom to tell of what is doubtful.

    Raises:
        UserError: a server does not answer, or the disk is far too small for the dataset.
        InputError: a step reads files beside the images or regions of the user, and no image has
            any.
    """
    for step in work.plan.flow.steps:
        config = work.plan.configs[step.name]
        backend = step.backend(config)
        if backend is not None and backend.reach is not None:
            backend.reach(config)
        if getattr(config, "precision", "") == "int8":
            _check_int8(config, progress)
    kinds = work.plan.beside
    suffixes, table = work.plan.suffixes, work.plan.regions
    images, num_bytes, missing = _in_listing(work, chunks, len(kinds))
    for step, without in zip(kinds, missing, strict=True):
        if (
            step == CaptionStage.name or not without
        ):  # captions that are not there are found at once
            continue
        backend = f"{step}.backend = {work.plan.recipe.tables[step].backend!r}"
        what = f"NAME{suffixes[step]}" if step in suffixes else f"row in {table and table.name}"
        if without == images:
            how = f"a {what} by the image's path"
            advice = "its paths may be relative to the image folder or to the file"
            if step in suffixes:
                how = f"{what} beside NAME.jpg"
                advice = "put the files there, or choose another backend"
            raise InputError(
                f"{work.images.root}: {backend} reads {how}, and none of the {images} images has "
                f"one; {advice}"
            )
        progress.note(
            f"{without} of {images} images have no {what}, which {backend} reads; they will be "
            "dropped"
        )
    _check_time(work, images, progress)
    _check_room(work, num_bytes, progress)
    check_scenes(work, chunks, progress)


def _check_int8(config: ModelConfig, progress: StageProgress) -> None:
    """Say if this machine would compute wrong numbers in 8 bits, which workers refuse to do."""
    from glit.models.int8 import is_exact

    if not is_exact():
        progress.note(
            f"{config.table}.precision = 'int8': this machine does not add products of 8 bits "
            f"exactly; unless others do the work, {config.table} will fail; use 'auto'"
        )


def _check_time(work: Work, images: int, progress: StageProgress) -> None:
    """Say how long a model that takes many seconds an image on a CPU will take, about."""
    for step in work.plan.flow.steps:
        config = work.plan.configs[step.name]
        backend = step.backend(config)
        if backend is None or backend.cpu_seconds is None or not backend.is_slow(config):
            continue
        model = work.plan.models[step.role]
        if model.is_mini:
            continue
        each = backend.cpu_seconds(config, model) / usable_cores()
        has_points = getattr(getattr(config, "options", None), "points_per_side", 0)
        points = "" if has_points else "fewer points (--set propose.points_per_side=16), "
        progress.note(
            f"{model.name} on a CPU: about {each:.0f} s an image and {duration(each * images)} for "
            f"{images} images if nothing else runs on this machine, several times that beside "
            "other work; after the first image the time left is measured. To take less: "
            f"{points}a GPU, or -r flism. You may stop it and run the same command again"
        )


def check_scenes(work: Work, chunks: Sequence[Chunk], progress: StageProgress) -> None:
    """Warn of mini models where the images are no procedural scenes: they run on any images, and
    are right on scenes alone. Images at an address would be fetched once more for it, so these are
    taken as they are."""
    models = {role: found.name for role, found in work.plan.models.items() if found.is_mini}
    models.pop("tokenizer", None)
    if wrong := meaningless(models, some_pictures(work, chunks)):
        instead = (
            "Choose a CLIP for photographs with --set score.model=FOLDER"
            if work.plan.recipe.caption.backend == "provided"
            else "For photographs choose -r laptop or -r flism"
        )
        progress.note(
            f"{', '.join(models.values())}: trained on glit's procedural scenes alone, and these "
            f"images look otherwise; the {wrong} will mean nothing. {instead}"
        )


def some_pictures(work: Work, chunks: Sequence[Chunk]) -> Iterator[Pixels]:
    """The pixels of some images of a few chunks, as they are read; none of images at an address."""
    if not work.images.is_local:
        return
    with open_listing(work.store.for_arrow("listing.parquet")) as file:
        some = chunks[:: len(chunks) // 4 + 1]
        picked = [read_chunk(file, chunk)[:LOOKED_AT] for chunk in some]
    for entry in islice(chain.from_iterable(zip_longest(*picked)), LOOKED_AT):
        if entry is not None and (pixels := _pixels(work, entry)) is not None:
            yield pixels


def _pixels(work: Work, entry: Entry) -> Pixels | None:
    """An image's pixels; None where ingest will drop it."""
    try:
        data = work.images.read(entry.path)
        return decode(data, max_pixels=work.plan.config(IngestConfig).max_pixels)
    except (ImageError, OSError, ValueError):
        return None


def _in_listing(work: Work, chunks: Sequence[Chunk], num_kinds: int) -> tuple[int, int, list[int]]:
    """Images of these chunks, their bytes, and for each kind of what is read beside them how many
    of them have none."""
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
                missing[kind] += int((stamps[kind::num_kinds] == NOT_THERE).sum())
    return images, num_bytes, missing


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
