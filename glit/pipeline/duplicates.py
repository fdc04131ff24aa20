"""Which images repeat others: the one step between the first stage and all others.

It needs the first stage's tables of all chunks at once. They are searched once, and what was
found is kept in the work folder.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, replace

import pyarrow as pa

from glit.data.schema import DUPLICATES_SCHEMA
from glit.errors import DamagedTableError
from glit.pipeline.listing import Chunk
from glit.pipeline.tables import read_table, tables_ahead, write_table
from glit.pipeline.work import BEFORE, Work
from glit.stages.dedup import Duplicate, find_duplicates
from glit.stages.ingest import Ingest, IngestConfig

_PREFIX = "duplicates-"
_BEFORE = f"duplicates{BEFORE}"
_SCHEMA = pa.schema([("chunk", pa.int64()), ("row", pa.int64()), *DUPLICATES_SCHEMA])


def leave_out_duplicates(work: Work, chunks: list[Chunk]) -> tuple[list[Chunk], list[Duplicate]]:
    """The chunks with the rows that repeat others, and these. All ingest tables must be there.

    Raises:
        DamagedTableError: of an ingest table.
        RunError: the disk is full or cannot be written to.
    """
    found = _found_before(work, name := _name(work, chunks))
    if found is None:
        spill = work.store.full("") if work.store.is_local else None
        near_bits = work.plan.config(IngestConfig).near_duplicates
        read = tables_ahead(work.store, (work.table(Ingest.name, chunk) for chunk in chunks))
        tables = zip((chunk.index for chunk in chunks), read, strict=True)
        found = find_duplicates(tables, near_bits=near_bits, spill=spill)
        rows = pa.Table.from_pylist([asdict(each) for each in found], schema=_SCHEMA)
        write_table(work.store, name, rows)
    return _without(chunks, found), found


def keep_duplicates_before(work: Work, chunks: list[Chunk]) -> None:
    """Keep those of now for the retry that begins: it may find others."""
    work.store.write(_BEFORE, work.store.read(_name(work, chunks)))


def chunks_before(work: Work, chunks: list[Chunk]) -> list[Chunk]:
    """The chunks with the duplicates of before the retry; as they are where nothing tells."""
    found = _found_before(work, _BEFORE)
    return chunks if found is None else _without(chunks, found)


def _without(chunks: list[Chunk], found: list[Duplicate]) -> list[Chunk]:
    skips: dict[int, list[int]] = {}
    for duplicate in found:
        skips.setdefault(duplicate.chunk, []).append(duplicate.row)
    return [replace(each, skip=tuple(sorted(skips.get(each.index, ())))) for each in chunks]


def forget_duplicates(work: Work) -> None:
    """To be called before an ingest table is written anew."""
    for name in work.store.names():
        if name.startswith(_PREFIX):
            work.store.remove(name)


def _name(work: Work, chunks: list[Chunk]) -> str:
    """By the names of the tables they are found in."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(work.table(Ingest.name, chunk).encode())
    return f"{_PREFIX}{digest.hexdigest()[:12]}.parquet"


def _found_before(work: Work, name: str) -> list[Duplicate] | None:
    try:
        return [Duplicate(**row) for row in read_table(work.store, name).to_pylist()]
    except DamagedTableError:  # or not there
        return None
