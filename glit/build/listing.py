"""Which files go in: a folder, a glob or a list file becomes one sorted listing on disk.

The listing is a Parquet file whose row groups are the chunks. Sorting is done by DuckDB, which
spills to disk, so memory does not grow with the number of images.
"""

from __future__ import annotations

import csv
import dataclasses
import fnmatch
import hashlib
import io
import json
import os
import posixpath
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from glit.errors import InputError, RunError
from glit.images import IMAGE_SUFFIXES
from glit.schema import LISTING_SCHEMA
from glit.storage import Entry, Store

_BATCH = 65_536
_LIST_SUFFIXES = {".txt", ".csv", ".jsonl"}
_GLOB_CHARACTERS = frozenset("*?[")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where images come from: a root, and which files below it."""

    root: str
    """Folder or URL; every path is relative to it."""
    pattern: str = ""
    """A glob relative to the root; empty takes every image file."""
    list_file: str = ""
    """A file that names the images; empty looks at the folder."""


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


def find_source(images: str) -> Source:
    """The source a user's IMAGES argument means.

    Raises:
        InputError: no such folder or file, or a kind of file that is no list.
    """
    if "://" in images:
        return Source(root=images)
    if os.path.isdir(images):
        return Source(root=os.path.abspath(images))
    if os.path.isfile(images):
        if Path(images).suffix.lower() not in _LIST_SUFFIXES:
            raise InputError(
                f"{images}: found a single file, want a folder, a glob, or a list "
                f"({', '.join(sorted(_LIST_SUFFIXES))})"
            )
        path = os.path.abspath(images)
        first = next(_names_in_list(Path(path)), (0, ""))[1]
        root = "/" if os.path.isabs(first) else os.path.dirname(path)
        return Source(root=root, list_file=path)
    if _GLOB_CHARACTERS & set(images):
        parts = Path(images).parts
        first = next(i for i, part in enumerate(parts) if _GLOB_CHARACTERS & set(part))
        root = os.path.abspath(os.path.join(*parts[:first]) if first else ".")
        if os.path.isdir(root):
            return Source(root=root, pattern="/".join(parts[first:]))
    raise InputError(f"{images}: no such folder; want a folder of images, a glob, or a list file")


def entries(source: Source, *, sidecars: Sequence[str] = ()) -> Iterator[Entry]:
    """The input files, unsorted.

    A folder gives its image files by suffix; a glob or a list gives exactly what it names.
    ``beside`` covers the files ``NAME`` with each suffix in ``sidecars`` beside the image.
    """
    store = Store(source.root)
    if source.list_file:
        found = _listed(source, store)
    else:
        found = (entry for entry in store.walk() if _wanted(entry, source.pattern))
    if not sidecars:
        yield from found
        return
    for entry in found:
        name = posixpath.splitext(entry.path)[0]
        files = [store.entry(name + suffix) for suffix in sidecars]
        beside = tuple(f"{file.size}:{file.stamp}" for file in files)
        yield dataclasses.replace(entry, beside=beside)


def _wanted(entry: Entry, pattern: str) -> bool:
    if pattern:
        return _glob_match(entry.path.split("/"), pattern.split("/"))
    if entry.path.endswith("/"):
        return True  # a folder that cannot be opened is reported, not passed over
    return os.path.splitext(entry.path)[1].lower() in IMAGE_SUFFIXES


def _glob_match(path: list[str], pattern: list[str]) -> bool:
    """Shell globbing by path parts; ``**`` stands for any number of folders."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_glob_match(path[i:], pattern[1:]) for i in range(len(path) + 1))
    return (
        bool(path)
        and fnmatch.fnmatchcase(path[0], pattern[0])
        and _glob_match(path[1:], pattern[1:])
    )


def _listed(source: Source, store: Store) -> Iterator[Entry]:
    seen: set[str] = set()
    for number, name in _names_in_list(Path(source.list_file)):
        path = name if _is_plain(name) else _tidy(name, source.root)
        if path in seen:
            continue
        seen.add(path)
        if path.startswith("../"):
            raise InputError(
                f"{source.list_file}: line {number} names {name!r}, outside the list's folder; "
                "put the list above the images, or use absolute paths throughout"
            )
        yield store.entry(path)


def _is_plain(name: str) -> bool:
    """Whether a name is relative and already in its shortest form, told quickly."""
    return not (name.startswith("/") or "//" in name or "./" in name or "\\" in name)


def _tidy(name: str, root: str) -> str:
    path = os.path.relpath(name, root) if name.startswith("/") else name
    return posixpath.normpath(path.replace(os.sep, "/"))


def _names_in_list(file: Path) -> Iterator[tuple[int, str]]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read as UTF-8 text ({error})") from error
    if file.suffix.lower() == ".csv":
        reader = csv.DictReader(io.StringIO(text))
        if "path" not in (reader.fieldnames or []):
            found = ", ".join(reader.fieldnames or [])
            raise InputError(f"{file}: found the columns {found or 'none'}, want one named 'path'")
        for row in reader:
            if row["path"]:
                yield reader.line_num, row["path"]
        return
    is_json = file.suffix.lower() == ".jsonl"
    for number, line in enumerate(text.split("\n"), start=1):
        if stripped := line.strip():
            yield number, _json_path(file, number, line) if is_json else stripped


def _json_path(file: Path, number: int, line: str) -> str:
    try:
        return str(json.loads(line)["path"])
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError(
            f'{file}: line {number}: want a JSON object with a "path" ({error!r})'
        ) from error


def write_listing(
    found: Iterable[Entry], target: Path, *, chunk_size: int, limit: int | None
) -> list[Chunk]:
    """Sort the entries by path, write them in row groups of one chunk each, return the chunks.

    Names that are not valid UTF-8 are stored escaped (``\\udcff`` as ``\\xff``) with size -2, so
    that ingest can name them in a drop.
    """
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        unsorted = Path(folder) / "unsorted.parquet"
        total = _write_batches(found, unsorted)
        total = total if limit is None else min(total, limit)
        size = chunk_size or min(256, max(16, -(-total // 16)))
        connection = duckdb.connect()
        connection.execute(f"SET temp_directory = '{folder.replace(chr(39), chr(39) * 2)}'")
        connection.execute("SET memory_limit = '1GB'")
        connection.execute("SET preserve_insertion_order = true")
        found_sorted = connection.sql(
            "SELECT path, size, stamp, beside FROM read_parquet($file, hive_partitioning = false) "
            "ORDER BY path LIMIT $total",
            params={"file": str(unsorted), "total": total},
        )
        return _write_chunks(found_sorted.to_arrow_reader(_BATCH), target, size)


def _write_batches(found: Iterable[Entry], target: Path) -> int:
    total = 0
    rows: dict[str, list] = {name: [] for name in LISTING_SCHEMA.names}
    with pq.ParquetWriter(target, LISTING_SCHEMA, compression="lz4") as writer:
        for entry in found:
            readable = entry.path.isascii() or _is_utf8(entry.path)
            rows["path"].append(entry.path if readable else _escaped(entry.path))
            rows["size"].append(entry.size if readable else -2)
            rows["stamp"].append(entry.stamp)
            rows["beside"].append(list(entry.beside))
            if len(rows["path"]) >= _BATCH:
                total += _flush(writer, rows)
        total += _flush(writer, rows)
    return total


def _is_utf8(path: str) -> bool:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _escaped(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _flush(writer: pq.ParquetWriter, rows: dict[str, list]) -> int:
    number = len(rows["path"])
    if number:
        writer.write_table(pa.table(rows, schema=LISTING_SCHEMA))
    for column in rows.values():
        column.clear()
    return number


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
