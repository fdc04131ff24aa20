"""From finished stage tables to a dataset in place: packing, ledgers, card, the manifest last."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pyarrow as pa

from glit.backends.tokenizer import tokenizer_hash
from glit.build.listing import Chunk
from glit.build.pack_task import PackTask, PackUnit, descriptions
from glit.build.plan import Plan
from glit.build.stage_task import disk_error
from glit.build.tables import write_parquet
from glit.build.work import Work
from glit.dataset.card import dataset_card
from glit.dataset.manifest import MANIFEST, Counts, make_manifest
from glit.errors import RunError
from glit.executors.protocols import Executor
from glit.progress import StageProgress
from glit.schema import DROPS_SCHEMA, DUPLICATES_SCHEMA
from glit.stages.dedup import Duplicate
from glit.stages.pack import DataFile, cut_files, describe_file, to_json
from glit.storage import Store

PUBLISHED = "published.sha256"
"""In the work folder: which images the finished dataset was built from."""


def publish(
    dataset: Store,
    work: Work,
    chunks: list[Chunk],
    duplicates: list[Duplicate],
    executor: Executor,
    progress: StageProgress,
) -> dict[str, Any]:
    """Pack the finished samples and put the dataset in place, the manifest last."""
    sizes, content = [], hashlib.sha256()
    for chunk in chunks:
        samples = work.samples("pack", chunk)
        sizes.append(np.array([sample.num_bytes for sample in samples], dtype=np.int64))
        content.update(work.table("match", chunk).encode())
        for sample in samples:
            content.update(sample.sample_id.encode())
    shipped = sum(map(len, sizes))
    drops = [row for chunk in chunks for row in work.drops(chunk)]
    counts = _counts(work, chunks, shipped, drops, len(duplicates))
    if not shipped:
        reasons = ", ".join(f"{number} {key}" for key, number in counts.drops.items())
        raise RunError(f"{work.images.root}: no sample was left to ship ({reasons})")
    tokenizer = _tokenizer(work.plan)
    files = cut_files(sizes, work.plan.recipe.pack)
    folder = f"{work.plan.folder('pack')}-{content.hexdigest()[:12]}"
    described = _pack(work, folder, files, chunks, tokenizer, executor, progress)
    try:
        listed = _put_in_place(dataset, folder, described, drops, duplicates)
        manifest = make_manifest(
            recipe=work.plan.recipe.as_dict(),
            fingerprints=dict(work.plan.fingerprints),
            models={role: model.identity() for role, model in work.plan.models.items()},
            tokenizer=tokenizer,
            counts=counts,
            files=listed,
        )
        dataset.write("README.md", dataset_card(manifest).encode())
        work.store.write(PUBLISHED, identity_of(chunks).encode())
        dataset.write(MANIFEST, to_json(manifest))
        work.store.remove(folder)
    except OSError as error:
        raise disk_error(error, dataset.root) from error
    return json.loads(json.dumps(manifest))


def _counts(
    work: Work, chunks: list[Chunk], shipped: int, drops: list[dict[str, Any]], duplicates: int
) -> Counts:
    by_reason: dict[str, int] = {}
    for row in drops:
        key = f"{row['stage']}/{row['reason']}"
        by_reason[key] = by_reason.get(key, 0) + 1
    ingested, _ = work.counts("ingest", chunks)
    return Counts(
        ingested=ingested,
        shipped=shipped,
        dropped=len(drops),
        duplicates=duplicates,
        drops=dict(sorted(by_reason.items())),
    )


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
    written = descriptions(work, folder, files)
    units = [
        PackUnit(file=file, chunks=tuple(chunks[piece.chunk] for piece in file.pieces))
        for file in files
        if file.name not in written
    ]
    total = sum(file.num_rows for file in files)
    progress.begin("pack", total=total, done=total - sum(unit.file.num_rows for unit in units))
    task = PackTask(work=work, folder=folder, tokenizer=tokenizer)
    executor.run(task, units, lambda _, tally: progress.advance(tally.rows, 0))
    return descriptions(work, folder, files)


def _put_in_place(
    dataset: Store,
    folder: str,
    described: dict[str, dict[str, Any]],
    drops: list[dict[str, Any]],
    duplicates: list[Duplicate],
) -> dict[str, dict[str, Any]]:
    """Move the data files in, write the two ledgers; the files of the manifest."""
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
    for name, content, schema in (
        ("drops.parquet", drops, DROPS_SCHEMA),
        ("duplicates.parquet", rows, DUPLICATES_SCHEMA),
    ):
        with dataset.atomic(name) as path:
            write_parquet(pa.Table.from_pylist(content, schema=schema), path)
            listed[name] = describe_file(path, len(content))
    return listed


def identity_of(chunks: list[Chunk]) -> str:
    """What images a dataset is built from: a hash over the keys of all chunks."""
    keys = [key for chunk in chunks for key in (chunk.key, *chunk.beside)]
    return hashlib.sha256(" ".join(keys).encode()).hexdigest()
