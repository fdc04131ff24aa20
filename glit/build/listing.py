"""The images of a build as one sorted listing, a Parquet file whose row groups are the chunks.

Images and the files beside them come in any order, as a store lists them. DuckDB sorts them and
brings them together; it spills to disk, so memory does not grow with their number.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from glit.ahead import batched
from glit.errors import RunError
from glit.schema import LISTING_SCHEMA
from glit.shards import BAD_NAME, is_utf8, stem
from glit.storage import Entry

_BATCH = 65_536
_FOUND = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("stamp", pa.string()),
        ("role", pa.int8()),
        ("stem", pa.string()),
    ]
)
_SORTED = """
    WITH found AS (SELECT * FROM read_parquet($file, hive_partitioning = false)),
         beside AS (SELECT stem, role, any_value(size || ':' || stamp) AS stamp
                    FROM found WHERE role > 0 GROUP BY stem, role)
    SELECT path, size, found.stamp, {beside} AS beside
    FROM found {joins} WHERE found.role = 0 ORDER BY path LIMIT $total
"""
NOT_THERE = "-1:"
"""What a file beside an image says of itself when there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A run of consecutive rows of the listing; the unit of work."""

    index: int
    key: str
    """Hash of the chunk's paths, sizes and stamps."""
    beside: tuple[str, ...] = ()
    """For each kind of file beside the images that the recipe reads, a hash of their stamps."""
    skip: tuple[int, ...] = ()
    """Rows that are duplicates of earlier images."""


def write_listing(
    found: Iterable[Entry],
    target: Path,
    *,
    chunk_size: int,
    limit: int | None,
    num_beside: int = 0,
) -> list[Chunk]:
    """Sort the images by path, write them in row groups of one chunk each, return the chunks.

    Names that are not valid UTF-8 are stored escaped (``\\udcff`` as ``\\xff``) with size -2, so
    that ingest can name them in a drop.

    Args:
        found: images, and the files beside them by their roles.
        target: the file.
        chunk_size: images in a chunk; 0 decides by their number.
        limit: only the first ones.
        num_beside: kinds of files beside the images that are wanted.
    """
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        unsorted = Path(folder) / "unsorted.parquet"
        total = _write_batches(found, unsorted, stems=bool(num_beside))
        total = total if limit is None else min(total, limit)
        size = chunk_size or min(256, max(16, -(-total // 16)))
        connection = duckdb.connect()
        connection.execute("SET enable_progress_bar = false")  # glit has its own
        connection.execute(f"SET temp_directory = '{folder.replace(chr(39), chr(39) * 2)}'")
        connection.execute("SET memory_limit = '512MB'")
        connection.execute("SET preserve_insertion_order = true")
        found_sorted = connection.sql(
            _sorted(num_beside), params={"file": str(unsorted), "total": total}
        )
        return _write_chunks(found_sorted.to_arrow_reader(_BATCH), target, size)


def _sorted(num_beside: int) -> str:
    kinds = range(1, num_beside + 1)
    stamps = (f"coalesce(beside_{n}.stamp, '{NOT_THERE}')" for n in kinds)
    joins = (
        f"LEFT JOIN beside AS beside_{n} ON beside_{n}.stem = found.stem AND beside_{n}.role = {n}"
        for n in kinds
    )
    return _SORTED.format(beside=f"[{', '.join(stamps)}]::VARCHAR[]", joins=" ".join(joins))


def _write_batches(found: Iterable[Entry], target: Path, *, stems: bool) -> int:
    """All that was found, unsorted; how many of them are images."""
    total = 0
    with pq.ParquetWriter(target, _FOUND, compression="lz4") as writer:
        for batch in batched(found, _BATCH):
            paths = [entry.path for entry in batch]
            sizes = [entry.size for entry in batch]
            for index, path in enumerate(paths):
                if not path.isascii() and not is_utf8(path):
                    paths[index], sizes[index] = _escaped(path), BAD_NAME
            roles = [entry.role for entry in batch]
            columns = {
                "path": paths,
                "size": sizes,
                "stamp": [entry.stamp for entry in batch],
                "role": roles,
                "stem": [stem(path) for path in paths] if stems else pa.nulls(len(paths)),
            }
            writer.write_table(pa.table(columns, schema=_FOUND))
            total += roles.count(0)
    return total


def _escaped(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _write_chunks(reader: pa.RecordBatchReader, target: Path, size: int) -> list[Chunk]:
    chunks: list[Chunk] = []
    with pq.ParquetWriter(target, LISTING_SCHEMA, compression="zstd") as writer:
        for rows in _exactly(reader, size * max(1, _BATCH // size)):
            writer.write_table(rows, row_group_size=size)
            for start in range(0, rows.num_rows, size):
                chunks.append(_chunk(len(chunks), rows.slice(start, size)))
    return chunks


def _chunk(index: int, rows: pa.Table) -> Chunk:
    columns = [rows[name].to_pylist() for name in ("path", "size", "stamp")]
    kinds = zip(*rows["beside"].to_pylist(), strict=True)
    return Chunk(index=index, key=_hash(*columns), beside=tuple(_hash(stamps) for stamps in kinds))


def _hash(*columns: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for column in columns:
        digest.update("\0".join(map(str, column)).encode())
    return digest.hexdigest()[:12]


def read_chunks(listing: Any) -> list[Chunk]:
    """The chunks of a listing written earlier, by its path or opened."""
    file = pq.ParquetFile(listing)
    return [_chunk(index, file.read_row_group(index)) for index in range(file.num_row_groups)]


def _exactly(reader: pa.RecordBatchReader, size: int) -> Iterator[pa.Table]:
    """Tables of ``size`` rows, whatever the batches of the reader are; the last may be shorter."""
    held = pa.table({f.name: pa.array([], f.type) for f in LISTING_SCHEMA}, schema=LISTING_SCHEMA)
    for batch in reader:
        held = pa.concat_tables([held, pa.Table.from_batches([batch]).cast(LISTING_SCHEMA)])
        while held.num_rows >= size:
            yield held.slice(0, size).combine_chunks()
            held = held.slice(size)
    if held.num_rows:
        yield held.combine_chunks()


def read_chunk(file: pq.ParquetFile, chunk: Chunk) -> list[Entry]:
    """The listing's rows of a chunk.

    Raises:
        RunError: they are not those that the chunk was made of.
    """
    table = file.read_row_group(chunk.index)
    if _chunk(chunk.index, table).key != chunk.key:
        raise RunError(
            "listing.parquet in the work folder is damaged; glit build writes it anew, run the "
            "same command again"
        )
    rows = table.to_pylist()
    return [Entry(path=row["path"], size=row["size"], stamp=row["stamp"]) for row in rows]
