"""The images of a build as one listing, a Parquet file whose row groups are the chunks.

What was built together is a series, sorted by path. A build writes the first; every addition
appends one. The file's metadata says how many chunks each has.
"""

from __future__ import annotations

import contextlib
import filecmp
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from glit.data.bounded_parquet import BoundedParquet
from glit.data.schema import LISTING_SCHEMA
from glit.errors import RunError, first_line
from glit.pipeline.planning.inputs import Inputs
from glit.pipeline.work.scan import BATCH, NOT_THERE, ScannedFiles, images_now
from glit.stages.ingest import IngestConfig
from glit.stages.plan import Plan
from glit.storage.duckdb_temp import quoted, spilling
from glit.storage.store import Entry, Store

DAMAGED = (OSError, ValueError, pa.ArrowException)
"""Errors that reading a damaged listing raises."""
_LISTED = """
    CREATE VIEW {name} AS SELECT path, size, stamp, beside
    FROM read_parquet('{file}', hive_partitioning = false, file_row_number = true)
    WHERE file_row_number < {rows}
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
_META_SERIES = "glit.series"
"""In the metadata of a listing: the number of chunks of every series, joined by commas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Twins:
    """The exact duplicates of an image that have captions, regions or files beside them."""

    row: int
    """The image's row of its chunk."""
    sample_id: str
    paths: tuple[str, ...]
    labels: tuple[str, ...]
    """What identifies the captions, regions and files of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A run of consecutive rows of the listing; the unit of work."""

    index: int
    key: str
    """Hash of the chunk's paths, sizes and stamps."""
    beside: tuple[str, ...] = ()
    """For each kind of file beside the images that the recipe reads, a hash of their stamps; then
    of their captions and of their regions in the user's files, if there are such."""
    skip: tuple[int, ...] = ()
    """Rows that are duplicates of other images."""
    twins: tuple[Twins, ...] = ()
    """Of rows that stay, the exact duplicates whose captions and regions are theirs as well."""
    series: int = 0
    """0 for what was built first, 1 for what the first addition brought, and so on."""


def write_listing(
    found: ScannedFiles, target: Path, *, chunk_size: int, limit: int | None
) -> list[Chunk]:
    """Sort the images by path, write them in row groups of one chunk each, return the chunks.

    Args:
        found: what the folder holds.
        target: the file.
        chunk_size: images in a chunk; 0 decides by their number.
        limit: only the first ones.
    """
    total = found.num_images if limit is None else min(found.num_images, limit)
    images = _rows(found, "SELECT * FROM now ORDER BY path LIMIT $total", total=total)
    with _listing_writer(target) as writer:
        return _write_chunks(images, writer, chunk_size=chunk_size, total=total)


def _rows(found: ScannedFiles, sql: str, **values: Any) -> pa.RecordBatchReader:
    """The rows of a SELECT, by batches."""
    return found.connection.sql(sql, params=values).to_arrow_reader(BATCH)


def _listing_writer(target: Path) -> pq.ParquetWriter:
    """Writes a listing, with checksums that :func:`open_listing` looks at. Nobody asks for
    statistics, which for 39,000 chunks take hundreds of megabytes of memory."""
    return pq.ParquetWriter(
        target, LISTING_SCHEMA, compression="zstd", write_page_checksum=True, write_statistics=False
    )


def open_listing(listing: Any) -> BoundedParquet:
    """A listing by its path, or opened; damage raises one of :data:`DAMAGED`, or reading does."""
    return BoundedParquet(listing, page_checksum_verification=True)


def images_in_chunk(chunk_size: int, total: int) -> int:
    """``ingest.chunk_size``; for 0 a sixteenth of all images, at least 16 and at most 256.

    >>> images_in_chunk(0, 300), images_in_chunk(0, 10_000), images_in_chunk(64, 300)
    (19, 256, 64)
    """
    return chunk_size or min(256, max(16, -(-total // 16)))


def _write_chunks(
    reader: pa.RecordBatchReader,
    writer: pq.ParquetWriter,
    *,
    chunk_size: int,
    total: int,
    before: Sequence[Chunk] = (),
) -> list[Chunk]:
    """Write so many images, given in order, in row groups of one chunk each, as a series after the
    chunks ``before``, which are written already; all chunks."""
    size = images_in_chunk(chunk_size, total)
    series = before[-1].series + 1 if before else 0
    chunks = list(before)
    for rows in _exactly(reader, size * max(1, BATCH // size)):
        writer.write_table(rows, row_group_size=size)
        for start in range(0, rows.num_rows, size):
            chunks.append(_chunk(len(chunks), rows.slice(start, size), series))
    lengths = [len(each) for each in series_of(chunks)]
    writer.add_key_value_metadata({_META_SERIES: ",".join(map(str, lengths))})
    return chunks


def _chunk(index: int, rows: pa.Table, series: int = 0) -> Chunk:
    stamps = rows["beside"].combine_chunks().flatten()  # every image has as many
    num_kinds = len(stamps) // len(rows)
    return Chunk(
        index=index,
        key=_hash(rows["path"], rows["size"], rows["stamp"]),
        beside=tuple(_hash(stamps[kind::num_kinds]) for kind in range(num_kinds)),
        series=series,
    )


def _hash(*columns: pa.Array | pa.ChunkedArray) -> str:
    digest = hashlib.sha256()
    for column in columns:
        digest.update("\0".join(column.cast(pa.string()).to_pylist()).encode())
    return digest.hexdigest()[:12]


def read_chunks(listing: Any) -> list[Chunk]:
    """The chunks of a listing written earlier; damage raises one of :data:`DAMAGED`."""
    file = open_listing(listing)
    lengths = _lengths(file.metadata)
    if sum(lengths) != file.num_row_groups:
        raise ValueError(f"{file.num_row_groups} chunks, but its series have {sum(lengths)}")
    series = [number for number, length in enumerate(lengths) for _ in range(length)]
    return [_chunk(index, file.read_row_group(index), each) for index, each in enumerate(series)]


def _lengths(metadata: pq.FileMetaData) -> list[int]:
    said = (metadata.metadata or {}).get(_META_SERIES.encode(), b"").decode()
    return [int(length) for length in said.split(",") if length] or [metadata.num_row_groups]


def series_of(chunks: Sequence[Chunk]) -> list[list[Chunk]]:
    """The chunks by their series."""
    return [list(group) for _, group in groupby(chunks, key=lambda chunk: chunk.series)]


def identities(chunks: Sequence[Chunk]) -> list[str]:
    """Return an identity of the images of every series: a hash over the keys of its chunks."""
    keys = [
        " ".join(key for chunk in series for key in (chunk.key, *chunk.beside))
        for series in series_of(chunks)
    ]
    return [hashlib.sha256(each.encode()).hexdigest() for each in keys]


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
    try:
        table = file.read_row_group(chunk.index)
        if _chunk(chunk.index, table).key != chunk.key:
            raise ValueError("a chunk is another than it was")
    except DAMAGED as error:
        raise RunError(
            f"listing.parquet in the work folder is damaged ({first_line(error)}); glit build "
            "writes it anew, run the same command again"
        ) from error
    rows = table.to_pylist()
    return [Entry(path=row["path"], size=row["size"], stamp=row["stamp"]) for row in rows]


def labels_in_listing(listing: Any, chunks: Iterable[Chunk]) -> Iterator[pa.Table]:
    """Yield the series of the images of each chunk, and what identifies their captions, regions and
    files beside them; an empty text for none.

    Args:
        listing: its path, or opened.
        chunks: of it.
    """
    file = open_listing(listing)
    for chunk in chunks:
        beside = file.read_row_group(chunk.index, columns=["beside"])["beside"].to_pylist()
        said = [["" if stamp == NOT_THERE else stamp for stamp in each] for each in beside]
        series = pa.array([chunk.series] * len(said), pa.int64())
        yield pa.table({"series": series, "said": pa.array(said, pa.list_(pa.string()))})


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingDifference:
    """Numbers of images."""

    new: int
    """Found, but not listed before."""
    changed: int
    """Images of another size or modification time, or with other captions or masks."""
    gone: int

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.gone)

    def __str__(self) -> str:
        return (
            f"images that are new: {self.new}, that changed, or their captions or masks: "
            f"{self.changed}, gone: {self.gone}"
        )


def difference(found: ScannedFiles, listing: Path, chunks: Sequence[Chunk]) -> ListingDifference:
    """Return how what was found differs from a listing's first chunks."""
    metadata = pq.read_metadata(listing)
    rows = sum(metadata.row_group(chunk.index).num_rows for chunk in chunks)
    return _difference(found.connection, listing, rows)


def _difference(
    connection: duckdb.DuckDBPyConnection, before: Path, rows: int
) -> ListingDifference:
    connection.execute(_LISTED.format(name="old", file=quoted(before), rows=rows))
    ((new, changed, gone),) = connection.execute(_DIFFERENCE).fetchall()
    return ListingDifference(new=new, changed=changed, gone=gone)


def write_grown(
    found: ScannedFiles,
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
    with pq.ParquetFile(listing) as before, _listing_writer(target) as writer:
        for chunk in chunks:
            rows = before.read_row_group(chunk.index)
            writer.write_table(rows, row_group_size=len(rows))
        images = _rows(found, _NEW, most=new)
        return _write_chunks(images, writer, chunk_size=chunk_size, total=new, before=chunks)


class EarlierListing:
    """The listing in the work folder, beside one that is to take its place.

    Args:
        work: the work folder.
        now: the new listing.
    """

    def __init__(self, work: Store, now: Path) -> None:
        self._work, self._now = work, now
        try:
            self.num_series = len(_lengths(pq.read_metadata(work.for_arrow("listing.parquet"))))
            """0 where there is no listing, or its footer is damaged."""
        except DAMAGED:
            self.num_series = 0

    @property
    def is_added_to(self) -> bool:
        """True if images were added: the listing says in which order they came, which a new one
        cannot."""
        return self.num_series > 1 and bool(self.chunks)

    @cached_property
    def chunks(self) -> list[Chunk]:
        """The chunks of the earlier listing; empty where it is damaged."""
        try:
            return read_chunks(self._work.for_arrow("listing.parquet"))
        except DAMAGED:
            return []

    @cached_property
    def difference(self) -> ListingDifference:
        """The difference of the new listing from it."""
        with (
            self._work.local_copy("listing.parquet") as path,
            spilling(self._now.parent) as connection,
        ):
            rows = pq.read_metadata(self._now).num_rows
            connection.execute(_LISTED.format(name="now", file=quoted(self._now), rows=rows))
            return _difference(connection, path, pq.read_metadata(path).num_rows)

    def how_it_differs(self, chunks: Sequence[Chunk]) -> str:
        """Return a note for the user before a build goes on with the new one; empty where there is
        nothing to know.

        Args:
            chunks: of the new one.
        """
        if not self.num_series:
            return ""
        with self._work.local_copy("listing.parquet") as path:
            is_equal = filecmp.cmp(path, self._now, shallow=False)
        if is_equal or not (self.chunks and self.difference):
            return ""
        before = {chunk.key for chunk in self.chunks}
        others = sum(chunk.key not in before for chunk in chunks)
        return (
            f"{self.difference}, since this folder was last built here; {others} of {len(chunks)} "
            "chunks hold other images than before and are done anew"
        )

    def keep(self) -> list[Chunk]:
        """Put it into the new one's place; its chunks."""
        self._now.write_bytes(self._work.read("listing.parquet"))
        return self.chunks


@contextlib.contextmanager
def new_listing(
    work: Store, plan: Plan, inputs: Inputs, *, limit: int | None
) -> Iterator[tuple[list[Chunk], EarlierListing, ScannedFiles]]:
    """List the images of a build; the listing takes its place when the block ends without an error.

    One with additions stays as it is where its images are those that were found. Yields the chunks,
    the listing that was there before, and the images.
    """
    size = plan.config(IngestConfig).chunk_size
    with images_now(work, plan, inputs.source) as now, work.atomic("listing.parquet") as target:
        chunks = write_listing(now, target, chunk_size=size, limit=limit)
        earlier = EarlierListing(work, target)
        if earlier.is_added_to and not earlier.difference:
            chunks = earlier.keep()
        yield chunks, earlier, now
