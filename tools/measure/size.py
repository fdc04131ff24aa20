"""Builds of millions, without their pixels: ``python -m tools.measure.size N -o FOLDER``.

A generator writes the list of images, the tables of every stage and the ledgers as a build of N
images leaves them (chunks of the default size); the last stage's table of the last chunk is
wanting. Then each of these runs in a process of its own, which tells its seconds and its largest
resident size:

``status``      ``glit status``
``plan``        reading all ledgers and cutting the data files
``resume``      ``glit build`` again, from the command to the first unit handed to a worker
``duplicates``  the same where the search for duplicates has not been done either
``add``         ``glit add`` of twenty scenes to the finished dataset, to its end; the data files of
                before are as long as they should be, with nothing in them
``nothing``     ``glit add`` once more, with nothing new

The tables of later stages are one table many times over: nothing but their footers is read here.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from glit.bench.harness import Row, in_own_process
from glit.bench.machine import peak_mb
from glit.data.schema import DROPS_SCHEMA
from glit.dataset.manifest import MANIFEST, Counts, make_manifest
from glit.executors.local import LocalExecutor
from glit.executors.protocols import Job
from glit.pipeline.add import add
from glit.pipeline.ledger import (
    count_series,
    cut_series,
    ledger_name,
    read_ledgers,
    series_made_of,
)
from glit.pipeline.listing import Chunk, read_chunks, write_listing
from glit.pipeline.plan import make_plan
from glit.pipeline.run import BuildRequest, build, forget_duplicates, leave_out_duplicates
from glit.pipeline.scan import gathered
from glit.pipeline.source import entries, find_source
from glit.pipeline.state import BuildState, update_state, write_state
from glit.pipeline.status import status
from glit.pipeline.tables import stage_table
from glit.pipeline.work import Work
from glit.scenes import write_scenes
from glit.stages import flow
from glit.stages.pack import PackConfig, cut_files
from glit.stages.plan import Recipe
from glit.stages.recipe import load_recipe
from glit.storage.checksummed_parquet import write_sealed
from glit.storage.store import Store, to_json
from tools.measure.parts import run_parts, seconds, silent

PARTS = ("status", "plan", "resume", "duplicates", "add", "nothing")
FLOW = flow(load_recipe("mini").tables)
TABLES = tuple(FLOW.stages)
_NUM_ADDED = 20
_IMAGE_BYTES = 200_000
_LEDGER = pa.schema([*DROPS_SCHEMA, ("num_bytes", pa.int64())])


def main() -> None:
    """Fill a folder, measure, remove it."""
    parser = argparse.ArgumentParser(prog="python -m tools.measure.size", description=__doc__)
    parser.add_argument("samples", type=int)
    run_parts(parser, {"size": sizes})


def sizes(arguments: argparse.Namespace) -> Iterator[Row]:
    """Everything on one made-up folder, each in a process of its own."""
    folder: Path = arguments.output / f"size-{arguments.samples}"
    try:
        fill(folder, arguments.samples)
        for part in PARTS:
            yield {"part": part, **in_own_process(measured, part, folder)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measured(part: str, folder: Path) -> dict[str, float]:
    """Seconds on the wall, of the processor, and megabytes; the imports are in the latter alone."""
    recipe = _recipe()
    work = _work(folder, recipe)
    chunks = read_chunks(work.store.full("listing.parquet")) if part == "plan" else []
    if part == "add":
        finish(work, folder)

    def plan() -> None:
        cut_files(read_ledgers(work, chunks).sizes, work.plan.config(PackConfig))

    def more() -> None:
        balance = add(str(folder / "out"), LocalExecutor(), silent()).balance
        assert (balance is None) == (part == "nothing"), balance

    def resume() -> None:
        if part == "duplicates":
            forget_duplicates(work)
        _resume(folder, recipe)

    ways = {"status": lambda: status(str(folder / "out")), "plan": plan}
    wall, cpu = seconds(ways.get(part, more if part in ("add", "nothing") else resume))
    return {"seconds": round(wall, 1), "cpu_seconds": round(cpu, 1), "peak_mb": round(peak_mb())}


class _FirstUnit(Exception):
    """Raised when the driver hands out work: the resume is over."""


class _Stops:
    device = "cpu"

    def run(self, jobs: Sequence[Job]) -> None:
        if any(job.units for job in jobs):
            raise _FirstUnit

    def close(self) -> None:
        """Nothing to stop."""


def _resume(folder: Path, recipe: Recipe) -> None:
    request = BuildRequest(
        images=str(folder / "list.txt"), output=str(folder / "out"), recipe=recipe
    )
    try:
        build(request, _Stops(), silent())
    except _FirstUnit:
        return
    raise AssertionError("the resume found nothing to do")


def _recipe() -> Recipe:
    return load_recipe("mini", overrides=["propose.backend=grid"])


def _work(folder: Path, recipe: Recipe) -> Work:
    store = Store(folder / "out" / "work")
    return Work(store=store, images=Store(folder), plan=make_plan(recipe, device="cpu"))


def fill(folder: Path, num_samples: int) -> None:
    """The work folder of a build whose last stage lacks one chunk, beside its list of images."""
    recipe = _recipe()
    work = _work(folder, recipe)
    Path(work.store.root).mkdir(parents=True)
    with (folder / "list.txt").open("w") as names:
        names.writelines(f"{i // 1000:05d}/{i:08d}.jpg\n" for i in range(num_samples))
    source = find_source(str(folder / "list.txt"))
    listing = Path(work.store.root) / "listing.parquet"
    with gathered(entries(source), listing.parent, num_beside=0) as now:
        write_listing(now, listing, chunk_size=0, limit=None)
    chunks = read_chunks(listing)
    _write_tables(work, chunks, num_samples)
    leave_out_duplicates(work, chunks)
    state = BuildState(
        images=source.root,
        source={"pattern": source.pattern, "list_file": source.list_file},
        captions=None,
        recipe=recipe.as_dict(),
        folders={stage: work.plan.folder(stage) for stage in TABLES},
        num_chunks=len(chunks),
    )
    write_state(work.store, state)


def finish(work: Work, folder: Path) -> None:
    """Make a finished dataset of it, and name some scenes in its list of images besides."""
    chunks, duplicates = leave_out_duplicates(work, read_chunks(work.store.full("listing.parquet")))
    _write_ingest(work, chunks[-1], [row["sample_id"] for row in work.ingest_rows(chunks[-1])])
    path = Path(work.store.full(work.table(TABLES[-1], chunks[-1])))
    path.write_bytes(_table_bytes(TABLES[-1], work.store))
    ledger = read_ledgers(work, chunks)
    (counts,) = count_series(work, chunks, ledger, duplicates)
    known = {"bytes": 1 << 28, "sha256": "", "without_pair": 0}
    files = {
        f"data/{file.name}": {"rows": file.num_rows, **known}
        for file in cut_series(work, chunks, ledger)
    }
    for name, found in files.items():
        path = folder / "out" / name
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            file.truncate(found["bytes"])
    manifest = make_manifest(
        recipe=work.plan.recipe.as_dict(),
        fingerprints=dict(work.plan.fingerprints),
        models={role: model.identity() for role, model in work.plan.models.items()},
        precision={},
        tokenizer={"name": "", "sha256": "", "context": 248},
        counts=Counts(**asdict(counts), drops=ledger.drops_by_reason()),
        files=files,
        packages={},
    )
    update_state(work.store, published=series_made_of(chunks, ledger.contents))
    Store(folder / "out").write(MANIFEST, to_json(manifest))
    write_scenes(folder / "scenes", num=_NUM_ADDED, seed=0)
    with (folder / "list.txt").open("a") as names:
        names.writelines(f"scenes/images/{number:06d}.png\n" for number in range(_NUM_ADDED))


def _write_tables(work: Work, chunks: list[Chunk], num_samples: int) -> None:
    same = {stage: _table_bytes(stage, work.store) for stage in TABLES[1:]}
    for stage in TABLES:
        Path(work.store.full(work.plan.folder(stage))).mkdir()
    Path(work.store.full(ledger_name(work, chunks[0]))).parent.mkdir()
    size = -(-num_samples // len(chunks))
    for chunk, ids in zip(chunks, _ids(chunks, num_samples, size), strict=True):
        _write_ingest(work, chunk, ids)
        for stage, data in same.items():
            if stage != TABLES[-1] or chunk is not chunks[-1]:
                Path(work.store.full(work.table(stage, chunk))).write_bytes(data)


def _ids(chunks: list[Chunk], num_samples: int, size: int) -> Iterator[list[str]]:
    rng = np.random.default_rng(0)
    for start in range(0, num_samples, size):
        text = rng.bytes(32 * min(size, num_samples - start)).hex()
        yield [text[i : i + 64] for i in range(0, len(text), 64)]


def _write_ingest(work: Work, chunk: Chunk, ids: list[str]) -> None:
    """The ingest table of a chunk and its ledger, in which every hundredth image is dropped."""
    known = {
        "sample_id": ids,
        "source_path": [f"{chunk.index:06d}/{i}.jpg" for i in range(len(ids))],
        "num_bytes": [_IMAGE_BYTES] * len(ids),
    }
    empty = _columns("ingest", [])
    number = len(ids)
    ingest = pa.table(
        {
            name: known.get(name, pa.nulls(number, empty.schema.field(name).type))
            for name in empty.schema.names
        },
        schema=empty.schema.with_metadata({"glit.rows": str(number), "glit.drops": ""}),
    )
    write_sealed(ingest, Path(work.store.full(work.table("ingest", chunk))))
    dropped = [i % 100 == 99 for i in range(number)]
    told = {
        "stage": ["caption" if drop else None for drop in dropped],
        "reason": ["looping" if drop else None for drop in dropped],
    }
    ledger = {
        name: {**known, **told}.get(name, pa.nulls(number, _LEDGER.field(name).type))
        for name in _LEDGER.names
    }
    write_sealed(pa.table(ledger, schema=_LEDGER), Path(work.store.full(ledger_name(work, chunk))))


def _columns(stage: str, rows: list[dict[str, Any]]) -> pa.Table:
    return stage_table(FLOW.step(stage).columns, rows)


def _table_bytes(stage: str, store: Store) -> bytes:
    path = Path(store.full("same.parquet"))
    write_sealed(_columns(stage, [{"sample_id": f"{i:064x}"} for i in range(256)]), path)
    data = path.read_bytes()
    path.unlink()
    return data


if __name__ == "__main__":
    main()
