"""Ledgers: which images of a chunk are shipped and which dropped. Workers write, publishing reads.

A row is an image that is no duplicate: its size if it is shipped, else the stage that dropped it.
From them follow the series of a dataset (what was built first, and every addition): their balance,
their data files, and which of these can stay as they are.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from glit.data.schema import DROPS_SCHEMA
from glit.dataset.manifest import Counts, FileEntry, Manifest, SeriesCounts
from glit.models.backends.base import PLAIN_BYTES
from glit.pipeline.executors.protocols import Heartbeat, Job, Resources, Tally
from glit.pipeline.work.folder import Work
from glit.pipeline.work.listing import Chunk, identities, series_of
from glit.pipeline.work.open_work import OpenWork
from glit.pipeline.work.state import Published, read_state
from glit.pipeline.work.tables import sum_counts, tables_ahead, write_table
from glit.stages.dedup import Duplicate
from glit.stages.ingest import Ingest
from glit.stages.pack import DataFile, Pack, PackConfig, cut_files
from glit.storage.store import Store

_SCHEMA = pa.schema([*DROPS_SCHEMA, ("num_bytes", pa.int64()), ("mining", pa.string())])
"""``stage`` is null for a shipped image."""
_COMBINED = 1000
"""Tables of drops that are made into one."""


def ledger_name(work: Work, chunk: Chunk) -> str:
    """Path of a chunk's ledger; its name changes with whatever any stage reads."""
    return f"{work.ledger_folder}/{work.table(Pack.name, chunk).rpartition('/')[2]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerTask:
    """Writes the ledgers of chunks whose tables are all there; nothing to load, so it is its own
    worker."""

    work: Work
    name: str = "ledger"
    loads: str = ""
    needs: Resources = Resources(memory_bytes=PLAIN_BYTES)

    def open(self, threads: int) -> LedgerTask:
        return self

    def run(
        self, unit: Chunk, excluded: Mapping[str, str] | None
    ) -> Generator[Heartbeat, None, Tally]:
        """Write a chunk's ledger."""
        yield from ()
        rows = pa.Table.from_pylist(list(self._rows(unit)), schema=_SCHEMA)
        write_table(self.work.store, ledger_name(self.work, unit), rows)
        return Tally(rows=len(rows))

    def _rows(self, chunk: Chunk) -> Iterator[dict[str, Any]]:
        skip = set(chunk.skip)
        first, *stages = self.work.plan.flow.stages
        later = {stage: self.work.outcomes(stage, chunk) for stage in stages}
        for number, row in enumerate(self.work.ingest_rows(chunk)):
            if number in skip:
                continue
            known = {key: row[key] for key in ("sample_id", "source_path", "num_bytes")}
            stage, drop = first, row["drop"]
            for name in stages:
                if drop is not None:
                    break
                of = (row["sample_id"], row["source_path"], name, chunk)
                stage, drop = name, self.work.row_of(later[name], *of)
            if drop is None:
                yield {**known, "mining": row["mining"]}
            else:
                yield {**known, "stage": stage, **drop}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The facts on all chunks that publishing needs."""

    sizes: list[np.ndarray]
    """Per chunk the encoded bytes of every shipped image, in order."""
    num_dropped: list[int]
    """Per chunk."""
    drops: pa.Table
    """Rows of ``drops.parquet``."""
    contents: tuple[str, ...]
    """Hashes of what is shipped, hex, one of every series; they name the folder of data files not
    yet published."""
    mining: Mapping[str, int]
    """How many shipped images have metadata with each value of ``plus:DataMining``."""

    def drops_by_reason(self) -> dict[str, int]:
        """Return how many were dropped, by ``stage/reason``, sorted."""
        stages, reasons = (self.drops[name].to_pylist() for name in ("stage", "reason"))
        counted = Counter(f"{s}/{r}" for s, r in zip(stages, reasons, strict=True))
        return dict(sorted(counted.items()))


def make_ledger(opened: OpenWork, chunks: list[Chunk]) -> Ledger:
    """Return the ledger of all chunks; workers write it for chunks that lack it."""
    work, progress = opened.work, opened.progress
    names = work.store.names(work.ledger_folder)
    missing = [c for c in chunks if ledger_name(work, c).rpartition("/")[2] not in names]
    done = len(chunks) - len(missing)
    task = LedgerTask(work=work)
    job = Job(
        task=task,
        units=missing,
        on_done=lambda *_: progress.advance(1),
        begin=lambda: progress.begin("ledger", total=len(chunks), done=done, drops=False),
        worked=opened.timeline.recorder(task, missing),
    )
    opened.executor.run([job])
    return read_ledgers(work, chunks)


def read_ledgers(work: Work, chunks: list[Chunk]) -> Ledger:
    """All ledgers of a finished flow, in the order of the chunks."""
    sizes: list[np.ndarray] = []
    drops: list[pa.Table] = []
    num_dropped: list[int] = []
    contents: list[Any] = []
    mining = Counter[str]()
    read = tables_ahead(work.store, (ledger_name(work, chunk) for chunk in chunks))
    for chunk, table in zip(chunks, read, strict=True):
        kept = table.filter(table["stage"].is_null())
        sizes.append(kept["num_bytes"].to_numpy())
        mining.update(kept["mining"].to_pylist())
        drops.append(table.filter(table["stage"].is_valid()).select(DROPS_SCHEMA.names))
        num_dropped.append(len(drops[-1]))
        if len(drops) == _COMBINED:  # many small tables take more memory than their rows
            drops = [pa.concat_tables(drops).combine_chunks()]
        if chunk.series == len(contents):
            contents.append(hashlib.sha256())
        for name in work.plan.flow.ends:
            contents[-1].update(work.table(name, chunk).encode())
        contents[-1].update("".join(kept["sample_id"].to_pylist()).encode())
    return Ledger(
        sizes=sizes,
        num_dropped=num_dropped,
        drops=pa.concat_tables(drops).cast(DROPS_SCHEMA),
        contents=tuple(content.hexdigest()[:12] for content in contents),
        mining=dict(sorted(mining.items())),
    )


def count_series(
    work: Work, chunks: list[Chunk], ledger: Ledger, duplicates: list[Duplicate]
) -> list[SeriesCounts]:
    """The balance of every series."""
    repeats = Counter(duplicate.chunk for duplicate in duplicates)
    return [
        SeriesCounts(
            ingested=sum_counts(work.store, [work.table(Ingest.name, c) for c in series])[0],
            shipped=sum(len(ledger.sizes[chunk.index]) for chunk in series),
            dropped=sum(ledger.num_dropped[chunk.index] for chunk in series),
            duplicates=sum(repeats[chunk.index] for chunk in series),
        )
        for series in series_of(chunks)
    ]


def sum_series(series: Sequence[SeriesCounts], ledger: Ledger) -> Counts:
    """The balance of the whole dataset, with its drops by reason."""
    balances = [dataclasses.asdict(each) for each in series]
    total = {name: sum(balance[name] for balance in balances) for name in balances[0]}
    return Counts(**total, drops=ledger.drops_by_reason())


def cut_series(work: Work, chunks: list[Chunk], ledger: Ledger) -> list[DataFile]:
    """The data files of all series."""
    config = work.plan.config(PackConfig)
    return [
        file
        for number, series in enumerate(series_of(chunks))
        for file in cut_files(
            [ledger.sizes[chunk.index] for chunk in series],
            config,
            series=number,
            first_chunk=series[0].index,
        )
    ]


def same_series(work: Work, ledger: Ledger, before: Manifest | None) -> set[int]:
    """The series of which the dataset holds just what would be shipped now."""
    if before is None or before.fingerprints != dict(work.plan.fingerprints):
        return set()
    noted = [each.content for each in read_state(work.store).published or ()][: before.num_series]
    both = zip(noted, ledger.contents, strict=False)  # there may be more of either
    return {number for number, (then, now) in enumerate(both) if then == now}


def kept_files(
    dataset: Store, before: Manifest, files: list[DataFile], same: set[int]
) -> dict[str, FileEntry]:
    """Return the manifest's entries of those data files that stay, by name."""
    known = before.files
    return {
        file.name: known[name]
        for file in files
        if file.series in same
        and (name := f"data/{file.name}") in known
        and dataset.entry(name).size == known[name].bytes
    }


def series_made_of(chunks: Sequence[Chunk], contents: Sequence[str]) -> tuple[Published, ...]:
    """Return the record that the state keeps of a dataset, by series."""
    both = zip(identities(chunks), contents, strict=True)
    return tuple(Published(images=images, content=content) for images, content in both)
