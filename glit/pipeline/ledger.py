"""Ledgers: which images of a chunk are shipped and which dropped. Workers write, publishing reads.

A row is an image that is no duplicate: its size if it is shipped, else the stage that dropped it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from glit.backends.base import PLAIN_BYTES
from glit.data.schema import DROPS_SCHEMA
from glit.executors.protocols import Heartbeat, Resources, Tally
from glit.pipeline.listing import Chunk
from glit.pipeline.tables import tables_ahead, write_table
from glit.pipeline.work import Work

_SCHEMA = pa.schema([*DROPS_SCHEMA, ("num_bytes", pa.int64())])
"""``stage`` is null for a shipped image."""


def ledger_name(work: Work, chunk: Chunk) -> str:
    """Path of a chunk's ledger; its name changes with whatever any stage reads."""
    return f"{work.ledger_folder}/{work.table('pack', chunk).rpartition('/')[2]}"


def missing_ledgers(work: Work, chunks: list[Chunk]) -> list[Chunk]:
    """The chunks whose ledger is not there yet."""
    names = work.store.names(work.ledger_folder)
    return [c for c in chunks if ledger_name(work, c).rpartition("/")[2] not in names]


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

    def run(self, unit: Chunk, excluded: Mapping[int, str]) -> Generator[Heartbeat, None, Tally]:
        """Write a chunk's ledger."""
        yield from ()
        rows = pa.Table.from_pylist(list(self._rows(unit)), schema=_SCHEMA)
        write_table(self.work.store, ledger_name(self.work, unit), rows)
        return Tally(rows=len(rows))

    def probe(self, unit: Chunk, start: int, stop: int, excluded: Mapping[int, str]) -> None:
        """Nothing: no sample is touched."""

    def size(self, unit: Chunk) -> int:
        return 0

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
            yield known if drop is None else {**known, "stage": stage, **drop}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What publishing needs to know of all chunks."""

    sizes: list[np.ndarray]
    """Per chunk the encoded bytes of every shipped image, in order."""
    num_dropped: list[int]
    """Per chunk."""
    drops: pa.Table
    """Rows of ``drops.parquet``."""
    contents: tuple[str, ...]
    """Of every series a hash of what is shipped, hex; they name the folder of data files not yet
    published."""

    def drops_by_reason(self) -> dict[str, int]:
        """How many were dropped, by ``stage/reason``, sorted."""
        stages, reasons = (self.drops[name].to_pylist() for name in ("stage", "reason"))
        counted = Counter(f"{s}/{r}" for s, r in zip(stages, reasons, strict=True))
        return dict(sorted(counted.items()))


def read_ledgers(work: Work, chunks: list[Chunk]) -> Ledger:
    """All ledgers of a finished flow, in the order of the chunks."""
    sizes: list[np.ndarray] = []
    drops: list[pa.Table] = []
    contents: list[Any] = []
    read = tables_ahead(work.store, (ledger_name(work, chunk) for chunk in chunks))
    for chunk, table in zip(chunks, read, strict=True):
        kept = table.filter(table["stage"].is_null())
        sizes.append(kept["num_bytes"].to_numpy())
        drops.append(table.filter(table["stage"].is_valid()).select(DROPS_SCHEMA.names))
        if chunk.series == len(contents):
            contents.append(hashlib.sha256())
        for name in work.plan.flow.ends:
            contents[-1].update(work.table(name, chunk).encode())
        contents[-1].update("".join(kept["sample_id"].to_pylist()).encode())
    return Ledger(
        sizes=sizes,
        num_dropped=[len(table) for table in drops],
        drops=pa.concat_tables(drops).cast(DROPS_SCHEMA),
        contents=tuple(content.hexdigest()[:12] for content in contents),
    )
