"""Duplicates across the whole input: the first in listing order stays.

Exact ones share a SHA-256 and are found by DuckDB, which spills to disk. Near
ones (optional) share a perceptual hash up to a number of bits, and colours.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from glit.images.likeness import same_colours
from glit.runtime.prefetch import batched
from glit.storage.duckdb_temp import spilling

VERSION = 1
NEAR_VERSION = 2
"""Version of the search for near-duplicates; 1 compared hashes alone, those of even pictures too.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """An image left out because an earlier one is the same."""

    chunk: int
    row: int
    """Row of the chunk's ingest table."""
    sample_id: str
    source_path: str
    kept_path: str
    kind: Literal["exact", "near"]


_SCHEMA = pa.schema(
    [
        ("chunk", pa.int64()),
        ("row", pa.int64()),
        ("sample_id", pa.string()),
        ("source_path", pa.string()),
        ("perceptual_hash", pa.int64()),
        ("colours", pa.binary()),
    ]
)
_TABLES_AT_ONCE = 64
_COLUMNS = ", ".join(_SCHEMA.names)
_EXACT = """
    WITH ranked AS (
        SELECT *, row_number() OVER same AS place, first_value(source_path) OVER same AS kept
        FROM live WINDOW same AS (PARTITION BY sample_id ORDER BY chunk, row)
    )
    SELECT chunk, row, sample_id, source_path, kept FROM ranked
    WHERE place > 1 ORDER BY chunk, row
"""


def find_duplicates(
    tables: Iterable[tuple[int, pa.Table]], *, near_bits: int, spill: str | None = None
) -> list[Duplicate]:
    """Every image that repeats an earlier one, in listing order.

    Args:
        tables: number and ingest table of every chunk; taken one after the other.
        near_bits: Hamming distance up to which hashes count as the same; -1 compares bytes only.
        spill: folder on a disk with room for what does not fit into memory.

    Raises:
        RunError: it has none.
    """
    with (
        tempfile.TemporaryDirectory(dir=spill) as folder,
        spilling(folder, memory="256MB") as connection,
    ):
        connection.register("ingested", _SCHEMA.empty_table())
        connection.execute("CREATE TABLE live AS SELECT * FROM ingested")
        for some in batched(map(_live, tables), _TABLES_AT_ONCE):
            connection.register("ingested", pa.concat_tables(some))
            connection.execute("INSERT INTO live SELECT * FROM ingested")
        query = connection.execute(_EXACT)
        exact = [
            Duplicate(
                chunk=chunk, row=row, sample_id=sample_id, source_path=path, kept_path=kept,
                kind="exact",
            )
            for chunk, row, sample_id, path, kept in query.fetchall()
        ]  # fmt: skip
        if near_bits < 0:
            return exact
        repeats = {(duplicate.chunk, duplicate.row) for duplicate in exact}
        live = connection.execute(f"SELECT {_COLUMNS} FROM live ORDER BY chunk, row")
        images = (
            Seen(
                chunk=chunk, row=row, sample_id=sample_id, source_path=path, perceptual_hash=value,
                colours=colours,
            )
            for chunk, row, sample_id, path, value, colours in iter(live.fetchone, None)
            if value is not None and (chunk, row) not in repeats
        )  # fmt: skip
        near = near_duplicates(images, max_bits=near_bits)
    return sorted([*exact, *near], key=lambda duplicate: (duplicate.chunk, duplicate.row))


def _live(item: tuple[int, pa.Table]) -> pa.Table:
    """The rows of a chunk that were not dropped."""
    chunk, table = item
    if "colours" not in table.column_names:  # a table of before, or one without hashes
        table = table.append_column("colours", pa.nulls(len(table), pa.binary()))
    whole = table.select(_SCHEMA.names[2:])
    whole = whole.add_column(0, "row", pa.array(np.arange(len(table))))
    whole = whole.add_column(0, "chunk", pa.array(np.full(len(table), chunk)))
    return whole.filter(table["drop"].is_null()).cast(_SCHEMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A usable image as the search for near-duplicates sees it."""

    chunk: int
    row: int
    sample_id: str
    source_path: str
    perceptual_hash: int
    colours: bytes


def near_duplicates(images: Iterable[Seen], *, max_bits: int) -> list[Duplicate]:
    """Images within ``max_bits`` Hamming distance of an earlier kept one of like colours, in the
    given order.

    Exact for any distance: hashes that differ in at most k bits agree in one of k + 1 bands
    (pigeonhole), so only images that share a band are compared.
    """
    width = 64 // (max_bits + 1)
    shifts = [index * width for index in range(max_bits + 1)]
    buckets: list[dict[int, list[int]]] = [{} for _ in shifts]
    hashes: list[int] = []
    paths: list[str] = []
    colours: list[bytes] = []
    found: list[Duplicate] = []
    for image in images:
        value = image.perceptual_hash & 0xFFFF_FFFF_FFFF_FFFF
        bands = [(value >> shift) & ((1 << width) - 1) for shift in shifts]
        pairs = list(zip(bands, buckets, strict=True))
        near = {index for band, bucket in pairs for index in bucket.get(band, ())}
        close = [
            index
            for index in near
            if (hashes[index] ^ value).bit_count() <= max_bits
            and same_colours(colours[index], image.colours)
        ]
        if close:
            found.append(
                Duplicate(
                    chunk=image.chunk, row=image.row, sample_id=image.sample_id,
                    source_path=image.source_path, kept_path=paths[min(close)], kind="near",
                )
            )  # fmt: skip
            continue
        for band, bucket in pairs:
            bucket.setdefault(band, []).append(len(hashes))
        hashes.append(value)
        paths.append(image.source_path)
        colours.append(image.colours)
    return found
