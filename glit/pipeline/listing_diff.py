"""A folder of images that has grown since it was listed: what is new in it, and the listing with
that appended.

Both sides are joined by DuckDB, which spills to disk, so memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from glit.pipeline.listing import Chunk, Found, listing_writer, quoted, write_chunks
from glit.storage.duckdb_temp import spilling

_OLD = """
    CREATE VIEW old AS SELECT path, size, stamp, beside
    FROM read_parquet('{file}', hive_partitioning = false, file_row_number = true)
    WHERE file_row_number < {rows}
"""
_NOW = """
    CREATE VIEW now AS SELECT path, size, stamp, beside
    FROM read_parquet('{file}', hive_partitioning = false)
"""
_DIFFERENCE = """
    SELECT count(*) FILTER (old.path IS NULL),
           count(*) FILTER (old.path IS NOT NULL AND now.path IS NOT NULL AND (
               (old.size, old.stamp, old.beside) IS DISTINCT FROM
               (now.size, now.stamp, now.beside))),
           count(*) FILTER (now.path IS NULL)
    FROM old FULL OUTER JOIN now ON old.path = now.path
"""
_NEW = "SELECT * FROM now ANTI JOIN old ON old.path = now.path ORDER BY path LIMIT $most"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Numbers of images."""

    new: int
    """Found, but not listed before."""
    changed: int
    """Of another size or modification time, or what is read besides them is another."""
    gone: int

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.gone)

    def __str__(self) -> str:
        return (
            f"images that are new: {self.new}, that changed, or their captions or masks: "
            f"{self.changed}, gone: {self.gone}"
        )


def difference(found: Found, listing: Path, chunks: Sequence[Chunk]) -> Difference:
    """How what was found differs from a listing's first chunks."""
    rows = num_images(listing, chunks)
    found.connection.execute(_OLD.format(file=quoted(listing), rows=rows))
    return _difference(found.connection)


def difference_of_listings(now: Path, before: Path) -> Difference:
    """How a listing differs from an earlier one."""
    with spilling(now.parent) as connection:
        connection.execute(_NOW.format(file=quoted(now)))
        rows = pq.read_metadata(before).num_rows
        connection.execute(_OLD.format(file=quoted(before), rows=rows))
        return _difference(connection)


def _difference(connection: duckdb.DuckDBPyConnection) -> Difference:
    ((new, changed, gone),) = connection.execute(_DIFFERENCE).fetchall()
    return Difference(new=new, changed=changed, gone=gone)


def write_grown(
    found: Found,
    listing: Path,
    target: Path,
    chunks: Sequence[Chunk],
    *,
    new: int,
    chunk_size: int,
) -> list[Chunk]:
    """Write a listing's first chunks as they are, and the new images as a series after them.

    To be called after :func:`difference` on the same.

    Args:
        found: what the folder holds now.
        listing: that of before.
        target: the file.
        chunks: those of the listing that stay.
        new: how many of the new images to take, the first by their paths.
        chunk_size: images in a chunk; 0 decides by the number of the new ones.

    Returns:
        All chunks.
    """
    with pq.ParquetFile(listing) as before, listing_writer(target) as writer:
        for chunk in chunks:
            rows = before.read_row_group(chunk.index)
            writer.write_table(rows, row_group_size=len(rows))
        images = found.images(_NEW, most=new)
        return write_chunks(images, writer, chunk_size=chunk_size, total=new, before=chunks)


def num_images(listing: Path, chunks: Sequence[Chunk]) -> int:
    """In a listing's first chunks."""
    metadata = pq.read_metadata(listing)
    return sum(metadata.row_group(chunk.index).num_rows for chunk in chunks)
