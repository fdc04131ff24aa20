"""The user's caption file, read once and streamed into a Parquet table sorted by path."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import os
import posixpath
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from glit.backends.captioners.user_captions import BroughtCaptions
from glit.errors import InputError, first_line
from glit.runtime.prefetch import batched
from glit.shards import is_utf8
from glit.storage.duckdb_temp import spilling
from glit.storage.store import Store

PATH_KEYS = ("path", "file_name", "filename", "image", "source_path")
TEXT_KEYS = ("caption", "text")
_SCHEMA = pa.schema([("path", pa.string()), ("caption", pa.string()), ("line", pa.int64())])
_BATCH = 16_384
_DIGITS = 12


def prepare(captions: str, *, image_root: str, work: Store) -> BroughtCaptions:
    """Read a caption file into a sorted table in ``work``.

    Paths in the file may be relative to the image folder or to the caption file, or absolute; the
    file may lie at an address, and so may the images. Nothing is done when the table for the same
    bytes and root is there already; its digest is a part of its name, so one that was damaged
    since is made anew.

    Raises:
        InputError: the file is missing, of an unknown kind, or a row is not understood.
    """
    with _at_hand(captions) as file:
        where = captions if _is_address(captions) else str(file.resolve())
        known = f"{_sha256(file)} {image_root} {where}"
        key = hashlib.sha256(known.encode()).hexdigest()[:_DIGITS]
        before = _written_before(work, f"captions-{key}-")
        if before is None:
            before = _write_sorted(read_captions(file, image_root, where=where), work, key)
    table = work.full(before) if work.is_local else work.address(before)
    return BroughtCaptions(name=file.name, table=table)


@contextlib.contextmanager
def brought_table(brought: BroughtCaptions | None) -> Iterator[Path | None]:
    """The table at hand on this machine; None for no captions."""
    if brought is None:
        yield None
        return
    folder, _, name = brought.table.rpartition("/")
    with Store(folder or "/").local_copy(name) as path:
        yield path


def _is_address(path: str) -> bool:
    return "://" in path


@contextlib.contextmanager
def _at_hand(captions: str) -> Iterator[Path]:
    """The file, or a copy of the one at an address."""
    if not _is_address(captions):
        if not Path(captions).is_file():
            raise InputError(f"--captions {captions}: no such file")
        yield Path(captions)
        return
    folder, _, name = captions.rpartition("/")
    try:
        with Store(folder).local_copy(name) as copy:
            yield copy
    except FileNotFoundError as error:
        raise InputError(f"--captions {captions}: no such file") from error


def _written_before(work: Store, start: str) -> str | None:
    """A table of such a name, if it is what it was."""
    for name in sorted(work.names()):
        if name.startswith(start) and name.endswith(".parquet"):
            with work.local_copy(name) as path:
                found = _sha256(path)
            if name.removesuffix(".parquet").endswith(found[:_DIGITS]):
                return name
            work.remove(name)
    return None


def _write_sorted(rows: Iterator[tuple[str, str | None, int]], work: Store, key: str) -> str:
    """The table's name."""
    if work.is_local:
        os.makedirs(work.full(""), exist_ok=True)
    with tempfile.TemporaryDirectory(dir=work.full("") if work.is_local else None) as folder:
        unsorted, finished = Path(folder) / "rows.parquet", Path(folder) / "sorted.parquet"
        _write(rows, unsorted)
        with spilling(folder) as connection:
            connection.sql(
                "SELECT * FROM read_parquet($file, hive_partitioning = false) ORDER BY path, line",
                params={"file": str(unsorted)},
            ).write_parquet(str(finished), row_group_size=20_480)
        found = _sha256(finished)
        name = f"captions-{key}-{found[:_DIGITS]}.parquet"
        with work.atomic(name) as path:
            os.replace(finished, path)
    return name


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_captions(
    file: Path, image_root: str, *, where: str = ""
) -> Iterator[tuple[str, str | None, int]]:
    """Path relative to the image root, caption and row number of every row.

    A caption with a lone surrogate, which JSON can hold and UTF-8 cannot, is None.

    Args:
        file: on this machine.
        image_root: folder or address.
        where: the address that the file is a copy of; empty for none.

    Raises:
        InputError: see :func:`prepare`.
    """
    relative = _finder(file, image_root, where)
    for number, row in _rows(file):
        path = _pick(row, PATH_KEYS, file, number)
        caption = _pick(row, TEXT_KEYS, file, number, default="")
        if is_utf8(path):  # no image of another name goes in
            yield relative(path), caption if is_utf8(caption) else None, number


def captions_in(file: Path) -> Iterator[str]:
    """The captions of a file whose rows need name no image; see :func:`read_captions`."""
    for number, row in _rows(file):
        yield _pick(row, TEXT_KEYS, file, number, default="")


def _rows(file: Path) -> Iterator[tuple[int, dict]]:
    readers = {".jsonl": _jsonl, ".csv": _csv, ".parquet": _parquet}
    reader = readers.get(file.suffix.lower())
    if reader is None:
        raise InputError(f"{file}: want .jsonl, .csv or .parquet")
    return reader(file)


def _finder(file: Path, image_root: str, where: str) -> Callable[[str], str]:
    """What makes a row's path relative to the image root."""
    if _is_address(image_root):
        beside = where.rpartition("/")[0] + "/" if _is_address(where) else ""
        under = image_root.removeprefix(beside) if beside else image_root
        return lambda path: _below(path, image_root, "" if _is_address(under) else under)
    root = Path(image_root)
    beside = "." if _is_address(where) else os.path.relpath(file.resolve().parent, root)
    return lambda path: _relative(path, root, beside)


def _below(path: str, image_root: str, under: str) -> str:
    """A path in a caption file, relative to an image root at an address.

    ``under`` is the image root as seen from the caption file, if it lies below that file's folder.
    Whether an object exists is not asked: that would be a request for every row.
    """
    if path.startswith(f"{image_root}/"):
        return path.removeprefix(f"{image_root}/")
    plain = posixpath.normpath(path)
    return plain.removeprefix(f"{under}/") if under else plain


def _relative(path: str, root: Path, beside: str) -> str:
    if os.path.isabs(path):
        return os.path.relpath(path, root)
    plain = posixpath.normpath(path)
    if beside != "." and not _exists(root / plain):
        from_file = os.path.relpath(root / beside / path, root)
        if not from_file.startswith(".."):
            return from_file
    return plain


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False  # a name too long or with a NUL is no file's


def _pick(
    row: dict, keys: tuple[str, ...], file: Path, number: int, *, default: str | None = None
) -> str:
    """The text under the first of the keys that a row has; ``default`` where it is null."""
    for key in keys:
        if key in row:
            value = default if row[key] is None else row[key]
            if not isinstance(value, str):
                raise InputError(
                    f"{file}: row {number} has {key} = {str(value)[:60]!r} "
                    f"({type(value).__name__}), want one text"
                )
            return value
    raise InputError(
        f"{file}: row {number} has the keys {', '.join(map(str, row))}; "
        f"want one of {', '.join(keys)}"
    )


def _jsonl(file: Path) -> Iterator[tuple[int, dict]]:
    with file.open(encoding="utf-8-sig") as lines:
        try:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise InputError(f"{file}: row {number} is no JSON object")
                    yield number, row
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{file}: not valid JSON lines in UTF-8 ({error})") from error


def _csv(file: Path) -> Iterator[tuple[int, dict]]:
    with file.open(encoding="utf-8-sig", newline="") as stream:
        rows, number = csv.DictReader(stream), 1
        try:
            while (row := _next_row(rows)) is not None:
                number += 1
                yield number, row
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(f"{file}: not valid CSV in UTF-8 ({error})") from error


def _next_row(rows: csv.DictReader) -> dict | None:
    """With fields of any length, where Python's csv refuses those over 131,072 characters; for one
    row alone, as the limit is the whole process's."""
    before = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        return next(rows, None)
    finally:
        csv.field_size_limit(before)


def _parquet(file: Path) -> Iterator[tuple[int, dict]]:
    try:
        opened = pq.ParquetFile(file)
        names = opened.schema_arrow.names
    except (ValueError, OSError, pa.ArrowException) as error:
        raise InputError(f"{file}: not a valid Parquet file ({error})") from error
    columns = [name for name in names if name in (*PATH_KEYS, *TEXT_KEYS)]
    number = 0
    try:
        for batch in opened.iter_batches(columns=columns):
            for row in batch.to_pylist():
                number += 1
                yield number, row
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{file}: damaged after row {number} ({first_line(error)}); fetch or write it again"
        ) from error


def _write(rows: Iterator[tuple[str, str | None, int]], target: Path) -> None:
    with pq.ParquetWriter(target, _SCHEMA, compression="lz4") as writer:
        for batch in batched(rows, _BATCH):
            columns = dict(zip(_SCHEMA.names, zip(*batch, strict=True), strict=True))
            writer.write_table(pa.table(columns, schema=_SCHEMA))
