"""From finished stage tables to a dataset in place: packing, ledgers, card, the manifest last."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

import pyarrow as pa

from glit.backends.tokenizer import tokenizer_hash
from glit.build.ledger import Ledger, LedgerTask, missing_ledgers, read_ledgers
from glit.build.listing import Chunk
from glit.build.one_build import StillHeld
from glit.build.pack_task import PackTask, PackUnit, descriptions
from glit.build.retries import retries
from glit.build.stage_task import disk_error
from glit.build.versions import earlier_versions, versions_of
from glit.build.work import Work
from glit.dataset.card import dataset_card
from glit.dataset.croissant import CROISSANT, croissant
from glit.dataset.manifest import (
    MANIFEST,
    Counts,
    describe_file,
    make_manifest,
    sum_without_pair,
)
from glit.errors import RunError
from glit.executors.protocols import Executor, Job
from glit.parquet import write_parquet
from glit.progress import StageProgress
from glit.schema import DUPLICATES_SCHEMA
from glit.stages import FLOW
from glit.stages.dedup import Duplicate
from glit.stages.pack import DataFile, PackConfig, cut_files
from glit.stages.plan import Plan
from glit.storage import Store, to_json

PUBLISHED = "published.sha256"
"""In the work folder: which images the finished dataset was built from."""


def publish(
    dataset: Store,
    work: Work,
    chunks: list[Chunk],
    duplicates: list[Duplicate],
    executor: Executor,
    progress: StageProgress,
    still_held: StillHeld,
) -> dict[str, Any]:
    """Pack the finished samples and put the dataset in place, the manifest last."""
    ledger = _ledger(work, chunks, executor, progress)
    ingested, _ = work.counts("ingest", chunks)
    counts = Counts(
        ingested=ingested,
        shipped=ledger.num_shipped,
        dropped=len(ledger.drops),
        duplicates=len(duplicates),
        drops=ledger.drops_by_reason(),
    )
    if not counts.shipped:
        reasons = ", ".join(f"{number} {key}" for key, number in counts.drops.items())
        raise RunError(
            f"{work.images.root}: no sample was left to ship ({reasons}); when that is mended, "
            "glit retry tries them again"
        )
    tokenizer = _tokenizer(work.plan)
    files = cut_files(ledger.sizes, work.plan.config(PackConfig))
    folder = f"{work.plan.folder('pack')}-{ledger.content}"
    described = _pack(work, folder, files, chunks, tokenizer, executor, progress)
    still_held()
    try:
        listed = _put_in_place(dataset, folder, described, ledger.drops, duplicates)
        manifest = make_manifest(
            recipe=work.plan.recipe.as_dict(),
            fingerprints=dict(work.plan.fingerprints),
            models={role: model.identity() for role, model in work.plan.models.items()},
            precision=_precisions(work.plan),
            tokenizer=tokenizer,
            counts=dataclasses.replace(counts, without_pair=sum_without_pair(described)),
            files=listed,
            calibration=None if (kept := work.plan.calibration) is None else kept.as_dict(),
            packages=versions_of(work.plan.recipe),
            packages_before=earlier_versions(work),
            retries=retries(work),
            prompt=work.plan.prompt if "captioner" in work.plan.models else "",
        )
        dataset.write("README.md", dataset_card(manifest).encode())
        dataset.write(CROISSANT, croissant(manifest))
        still_held()
        work.store.write(PUBLISHED, identity_of(chunks).encode())
        dataset.write(MANIFEST, to_json(manifest))
        work.store.remove(folder)
    except OSError as error:
        raise disk_error(error, dataset.root) from error
    return json.loads(json.dumps(manifest))


def _ledger(work: Work, chunks: list[Chunk], executor: Executor, progress: StageProgress) -> Ledger:
    """What became of every image; written by the workers for the chunks where it is not yet."""
    missing = missing_ledgers(work, chunks)
    done = len(chunks) - len(missing)
    job = Job(
        task=LedgerTask(work=work),
        units=missing,
        on_done=lambda *_: progress.advance(1),
        begin=lambda: progress.begin("ledger", total=len(chunks), done=done, drops=False),
    )
    executor.run([job])
    return read_ledgers(work, chunks)


def _precisions(plan: Plan) -> dict[str, str]:
    """What every step with a model computed in, by step."""
    steps = {step.name: step.backend(plan.configs[step.name]) for step in FLOW}
    return {
        name: plan.configs[name].precision
        for name, backend in steps.items()
        if backend is not None and backend.needs_model
    }


def _tokenizer(plan: Plan) -> dict[str, Any]:
    model = plan.models["tokenizer"]
    return {
        "name": model.name,
        "sha256": tokenizer_hash(model.path),
        "context": plan.recipe.split.context,
    }


def _pack(
    work: Work,
    folder: str,
    files: list[DataFile],
    chunks: list[Chunk],
    tokenizer: dict[str, Any],
    executor: Executor,
    progress: StageProgress,
) -> dict[str, dict[str, Any]]:
    units = [
        PackUnit(file=file, chunks=tuple(chunks[piece.chunk] for piece in file.pieces))
        for file in files
    ]
    total = sum(file.num_rows for file in files)
    job = Job(
        task=PackTask(work=work, folder=folder, tokenizer=tokenizer),
        units=units,
        on_done=lambda unit, tally: progress.finished(unit, tally.rows, 0),
        begin=lambda: progress.begin("pack", total=total, done=0, drops=False),
        watch=progress,
    )
    executor.run([job])
    return descriptions(work, folder, files)


def _put_in_place(
    dataset: Store,
    folder: str,
    described: dict[str, dict[str, Any]],
    drops: pa.Table,
    duplicates: list[Duplicate],
) -> dict[str, dict[str, Any]]:
    """Move the data files in, write drops and duplicates; the files of the manifest."""
    dataset.remove(MANIFEST)  # from here on the folder is an unfinished dataset
    dataset.remove("data")
    for name in described:
        dataset.move(f"work/{folder}/{name}", f"data/{name}")
    listed = {f"data/{name}": value for name, value in described.items()}
    rows = [
        {
            "sample_id": duplicate.sample_id,
            "source_path": duplicate.source_path,
            "kept_path": duplicate.kept_path,
            "kind": duplicate.kind,
        }
        for duplicate in duplicates
    ]
    repeated = pa.Table.from_pylist(rows, schema=DUPLICATES_SCHEMA)
    for name, content in (("drops.parquet", drops), ("duplicates.parquet", repeated)):
        with dataset.atomic(name) as path:
            write_parquet(content, path)
            listed[name] = describe_file(path, len(content))
    return listed


def identity_of(chunks: list[Chunk]) -> str:
    """What images a dataset is built from: a hash over the keys of all chunks."""
    keys = [key for chunk in chunks for key in (chunk.key, *chunk.beside)]
    return hashlib.sha256(" ".join(keys).encode()).hexdigest()
