"""From finished stage tables to a dataset in place: packing, ledgers, card, the manifest last."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence

import pyarrow as pa

from glit.data.bounded_parquet import BoundedParquet
from glit.data.parquet import write_parquet
from glit.data.schema import DUPLICATES_SCHEMA, SCHEMA_VERSION, hf_feature
from glit.dataset.card import dataset_card
from glit.dataset.croissant import CROISSANT, croissant
from glit.dataset.manifest import (
    MANIFEST,
    Counts,
    FileEntry,
    Manifest,
    ModelEntry,
    RecordedRecipe,
    RetrySettings,
    SeriesCounts,
    TokenizerEntry,
    describe_file,
    manifest_before,
    sum_without_pair,
)
from glit.dataset.mini_models import caution
from glit.dataset.statistics import dataset_statistics
from glit.errors import RunError
from glit.images.location import removed_note
from glit.inputs.lookup import NO_ROW, BroughtCaptions
from glit.inputs.user_tables import brought_table
from glit.models.backends.matchers.clip import own_scale
from glit.models.tokenizer import tokenizer_hash
from glit.pipeline.executors.protocols import Job
from glit.pipeline.mining_note import note_mining
from glit.pipeline.moved_boxes import moved_boxes_note
from glit.pipeline.pack_task import PackTask, PackUnit, descriptions
from glit.pipeline.preflight import some_pictures
from glit.pipeline.work.folder import Work
from glit.pipeline.work.ledger import (
    Ledger,
    count_series,
    cut_series,
    kept_files,
    make_ledger,
    same_series,
    series_made_of,
    sum_series,
)
from glit.pipeline.work.listing import Chunk
from glit.pipeline.work.open_work import OpenWork
from glit.pipeline.work.state import (
    earlier_versions,
    read_state,
    told_retries,
    update_state,
    versions_of,
)
from glit.pipeline.work.tables import disk_errors
from glit.plain import as_plain, from_plain
from glit.recipes.toml_tables import with_files
from glit.stages.caption import CaptionStage
from glit.stages.dedup import Duplicate
from glit.stages.pack import DataFile
from glit.stages.plan import Plan
from glit.storage.store import Store
from glit.version import __version__

LEFT_OUT = ("drops.parquet", "duplicates.parquet")


def publish(
    opened: OpenWork,
    chunks: list[Chunk],
    duplicates: list[Duplicate],
    *,
    appending: bool = False,
) -> Manifest:
    """Pack the finished samples and put the dataset in place, the manifest last.

    Data files of a series of which the same samples were shipped before stay as they are. While all
    do that the dataset has, its manifest stays valid until that of now takes its place.

    Args:
        opened: the build whose stages are all done.
        chunks: all of them, their duplicates known.
        duplicates: these.
        appending: refuse to change what the dataset has.

    Raises:
        RunError: nothing was left to ship, the disk is full, or what the dataset has would change
            when it must not.
    """
    dataset, work = opened.dataset, opened.work
    ledger = make_ledger(opened, chunks)
    series = count_series(work, chunks, ledger, duplicates)
    counts = sum_series(series, ledger)
    if not counts.shipped:
        _end_retry(work)
        reasons = ", ".join(f"{number} {key}" for key, number in counts.drops.items())
        raise RunError(
            f"{work.images.root}: no sample was left to ship ({reasons})"
            f"{_other_paths(work.plan.brought, ledger)}; once fixed, run glit retry"
        )
    tokenizer = _tokenizer(work.plan)
    files = cut_series(work, chunks, ledger)
    before = manifest_before(dataset)
    same = same_series(work, ledger, before)
    if appending and before is not None and len(same) < before.num_series:
        raise RunError(
            f"{dataset.root}: tables in its work folder are no longer those that it was made of (a "
            "retry was stopped, or some were lost and their images changed); run glit retry, which "
            "packs the dataset anew from what is there, then glit add again"
        )
    kept = {} if before is None else kept_files(dataset, before, files, same)
    todo = [file for file in files if file.name not in kept]
    shipped = hashlib.sha256(" ".join(ledger.contents).encode()).hexdigest()[:12]
    folder = f"{work.plan.folder('pack')}-{shipped}"
    described = _pack(opened, folder, todo, chunks, tokenizer)
    opened.still_held()
    with disk_errors(dataset.root):
        if before is None or before.data_files.keys() - {f"data/{name}" for name in kept}:
            dataset.remove(MANIFEST)  # from here on the folder is an unfinished dataset
        _put_in_place(dataset, folder, described, kept)
        data = {file.name: (kept | described)[file.name] for file in files}
        listed = {f"data/{name}": value for name, value in data.items()}
        listed |= write_left_out(work.store.below(folder), ledger.drops, duplicates)
        counts = dataclasses.replace(counts, without_pair=sum_without_pair(data))
        manifest = _manifest(opened, tokenizer, counts, series[1:], listed)
        card = _card(opened, chunks, manifest)
        opened.still_held()
        published = series_made_of(chunks, ledger.contents)
        update_state(work.store, published=published, mining=ledger.mining)
        # nothing that takes long from here on: what is in place already is of the dataset before
        for name in LEFT_OUT:
            dataset.move(f"work/{folder}/{name}", name)
        dataset.write("README.md", card.encode())
        dataset.write(CROISSANT, croissant(manifest, name=dataset.name))
        dataset.write(MANIFEST, manifest.as_bytes())
        work.store.remove(folder)
        _end_retry(work)
    note_mining(opened.progress, ledger.mining, work.plan.recipe)
    if removed := sum(each.locations_removed or 0 for each in described.values()):
        opened.progress.note(removed_note(removed))
    return manifest


def _manifest(
    opened: OpenWork,
    tokenizer: TokenizerEntry,
    counts: Counts,
    additions: Sequence[SeriesCounts],
    files: Mapping[str, FileEntry],
) -> Manifest:
    """The manifest of what is in place; the settings of a retry stand beside the build's recipe."""
    work, plan = opened.work, opened.built or opened.work.plan
    earlier = earlier_versions(work.store, plan.recipe)
    retries = told_retries(work.plan, read_state(work.store))
    return Manifest(
        schema_version=SCHEMA_VERSION,
        glit_version=__version__,
        recipe=from_plain(
            RecordedRecipe, as_plain(with_files(plan.recipe.as_dict(), os.path.basename))
        ),
        fingerprints=dict(plan.fingerprints),
        models={r: from_plain(ModelEntry, each.described()) for r, each in plan.models.items()},
        logit_scale=own_scale(plan.models.get("matcher")),
        precision=_precisions(plan),
        tokenizer=tokenizer,
        counts=counts,
        files=files,
        calibration=None if plan.calibration is None else plan.calibration.as_dict(),
        packages={**versions_of(work.plan.recipe), **versions_of(plan.recipe)},
        packages_before={name: tuple(versions) for name, versions in earlier.items()},
        additions=tuple(additions),
        retries=tuple(from_plain(RetrySettings, each) for each in retries),
        columns={name: hf_feature(kind) for name, kind in plan.flow.dataset_columns},
        prompt=plan.prompt if "captioner" in plan.models else "",
        further_prompts=plan.further_prompts,
    )


def _card(opened: OpenWork, chunks: list[Chunk], manifest: Manifest) -> str:
    """The card of the dataset whose data files are in place."""
    progress = opened.progress
    files = manifest.data_files
    if moved := moved_boxes_note(opened.work.plan.regions, opened.dataset, [*files]):
        progress.note(moved)
    progress.begin("count", total=manifest.counts.shipped, done=0, drops=False)
    figures = dataset_statistics(opened.dataset, manifest, report=progress.advance)
    return dataset_card(manifest, figures, caution(manifest, some_pictures(opened.work, chunks)))


def _other_paths(brought: BroughtCaptions | None, ledger: Ledger) -> str:
    """A path of each side, where no caption of the user's file is of one of the images."""
    drops = [row for row in ledger.drops.to_pylist() if row["stage"] == CaptionStage.name]
    if brought is None or not drops or not all(NO_ROW in row["message"] for row in drops):
        return ""
    with brought_table(brought) as table:
        captions = [] if table is None else next(BoundedParquet(table).iter_batches(1))["path"]
    if not len(captions):
        return f": {brought.name} has no captions"
    return (
        f": {brought.name} names {str(captions[0])!r}, the folder has "
        f"{drops[0]['source_path']!r}, and none of its captions is of one of "
        "these images"
    )


def _end_retry(work: Work) -> None:
    if work.retry is not None:
        update_state(work.store, retry=None)


def _precisions(plan: Plan) -> dict[str, str]:
    """Return the precision that every step with a model computed in, by step."""
    steps = {step.name: step.backend(plan.configs[step.name]) for step in plan.flow.steps}
    return {
        name: plan.configs[name].precision
        for name, backend in steps.items()
        if backend is not None and backend.needs_model
    }


def _tokenizer(plan: Plan) -> TokenizerEntry:
    model, context = plan.models["tokenizer"], plan.recipe.split.context
    return TokenizerEntry(name=model.name, sha256=tokenizer_hash(model.path), context=context)


def _pack(
    opened: OpenWork,
    folder: str,
    files: list[DataFile],
    chunks: list[Chunk],
    tokenizer: TokenizerEntry,
) -> dict[str, FileEntry]:
    work, progress = opened.work, opened.progress
    units = [
        PackUnit(index=index, file=file, chunks=tuple(chunks[piece.chunk] for piece in file.pieces))
        for index, file in enumerate(files)
    ]
    total = sum(file.num_rows for file in files)
    task = PackTask(work=work, folder=folder, tokenizer=as_plain(tokenizer))
    job = Job(
        task=task,
        units=units,
        on_done=lambda unit, tally: progress.finished(unit, tally.rows, {}),
        begin=lambda: progress.begin("pack", total=total, done=0, drops=False),
        watch=progress,
        worked=opened.timeline.recorder(task, units),
    )
    opened.executor.run([job])
    return descriptions(work, folder, files)


def _put_in_place(
    dataset: Store,
    folder: str,
    described: dict[str, FileEntry],
    kept: dict[str, FileEntry],
) -> None:
    """Move the data files in; what belongs neither to them nor to those that stay is removed."""
    if not kept:
        dataset.remove("data")
    for name in dataset.names("data") - kept.keys():
        dataset.remove(f"data/{name}")
    for name in described:
        dataset.move(f"work/{folder}/{name}", f"data/{name}")


def write_left_out(
    dataset: Store, drops: pa.Table, duplicates: list[Duplicate]
) -> dict[str, FileEntry]:
    """Write drops and duplicates into a folder; what the manifest says of these files."""
    rows = [dataclasses.asdict(duplicate) for duplicate in duplicates]
    repeated = pa.Table.from_pylist(rows, schema=DUPLICATES_SCHEMA)
    described = {}
    for name, content in zip(LEFT_OUT, (drops, repeated), strict=True):
        with dataset.atomic(name) as path:
            write_parquet(content, path)
            described[name] = describe_file(path, len(content))
    return described
