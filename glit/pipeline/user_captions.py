"""A user's file of captions, read once and streamed into a Parquet table sorted by path.

:mod:`glit.pipeline.user_regions` does the same with a file of regions by the functions here.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import os
import posixpath
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from glit.backends.captioners.user_captions import BroughtCaptions
from glit.backends.user_tables import UserTable
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
TableT = TypeVar("TableT", bound=UserTable)


def prepare(captions: str, *, image_root: str, work: Store) -> BroughtCaptions:
    """Read a caption file into a sorted table in ``work``.

    Paths in the file may be relative to the image folder or to the caption file, or absolute; the
    file may lie at an address, and so may the images. Nothing is done when the table for the same
    bytes and root is there already; its digest is a part of its name, so one that was damaged
    since is made anew.

    Raises:
        InputError: the file is missing, of an unknown kind, or a row is not understood.
    """
    return sorted_table(
        BroughtCaptions, captions, "captions", _SCHEMA, read_captions,
        image_root=image_root, work=work,
    )  # fmt: skip


def sorted_table(
    kind: type[TableT],
    given: str,
    option: str,
    schema: pa.Schema,
    read: Callable[..., Iterator[tuple[Any, ...]]],
    *,
    image_root: str,
    work: Store,
) -> TableT:
    """Write what ``read(file, image_root, where=)`` yields of a user's file into ``work``.

    Args:
        kind: of the result.
        given: the file or address.
        option: its name without the dashes; the table's name begins with it.
        schema: of the rows; it has ``path`` and ``line``, by which they are sorted.
        read: yields the values of each row.
        image_root: folder or address of the images.
        work: the work folder.
    """
    with _at_hand(given, option) as file:
        where = given if _is_address(given) else str(file.resolve())
        known = f"{_sha256(file)} {image_root} {where}"
        start = f"{option}-{hashlib.sha256(known.encode()).hexdigest()[:_DIGITS]}-"
        name = _written_before(work, start)
        if name is None:
            name = _write_sorted(read(file, image_root, where=where), schema, work, start)
    table = work.full(name) if work.is_local else work.address(name)
    return kind(name=file.name, table=table)


@contextlib.contextmanager
def brought_table(brought: UserTable | None) -> Iterator[Path | None]:
    """The table at hand on this machine; None where there is none."""
    if brought is None:
        yield None
        return
    folder, _, name = brought.table.rpartition("/")
    with Store(folder or "/").local_copy(name) as path:
        yield path


def _is_address(path: str) -> bool:
    return "://" in path


@contextlib.contextmanager
def _at_hand(given: str, option: str) -> Iterator[Path]:
    """The file, or a copy of the one at an address."""
    if not _is_address(given):
        if not Path(given).is_file():
            raise InputError(f"--{option} {given}: no such file")
        yield Path(given)
        return
    folder, _, name = given.rpartition("/")
    try:
        with Store(folder).local_copy(name) as copy:
            yield copy
    except FileNotFoundError as error:
        raise InputError(f"--{option} {given}: no such file") from error


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


def _write_sorted(
    rows: Iterator[tuple[Any, ...]], schema: pa.Schema, work: Store, start: str
) -> str:
    """The table's name."""
    if work.is_local:
        os.makedirs(work.full(""), exist_ok=True)
    with tempfile.TemporaryDirectory(dir=work.full("") if work.is_local else None) as folder:
        unsorted, finished = Path(folder) / "rows.parquet", Path(folder) / "sorted.parquet"
        _write(rows, schema, unsorted)
        with spilling(folder) as connection:
            connection.sql(
                "SELECT * FROM read_parquet($file, hive_partitioning = false) ORDER BY path, line",
                params={"file": str(unsorted)},
            ).write_parquet(str(finished), row_group_size=20_480)
        found = _sha256(finished)
        name = f"{start}{found[:_DIGITS]}.parquet"
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
    relative = finder(file, image_root, where)
    for number, row in rows_of(file, {*PATH_KEYS, *TEXT_KEYS}):
        path = pick(row, PATH_KEYS, file, number)
        caption = pick(row, TEXT_KEYS, file, number, default="")
        if is_utf8(path):  # no image of another name goes in
            yield relative(path), caption if is_utf8(caption) else None, number


def captions_in(file: Path) -> Iterator[str]:
    """The captions of a file whose rows need name no image; see :func:`read_captions`."""
    for number, row in rows_of(file, {*PATH_KEYS, *TEXT_KEYS}):
        yield pick(row, TEXT_KEYS, file, number, default="")


def rows_of(file: Path, columns: Collection[str] | None) -> Iterator[tuple[int, dict]]:
    """Rows of a file and their numbers; of a Parquet file these columns alone, None for all."""
    suffix = file.suffix.lower()
    if suffix == ".parquet":
        return _parquet(file, columns)
    readers = {".jsonl": _jsonl, ".csv": _csv}
    if suffix not in readers:
        raise InputError(f"{file}: want .jsonl, .csv or .parquet")
    return readers[suffix](file)


def finder(file: Path, image_root: str, where: str) -> Callable[[str], str]:
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


def pick(
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


def _parquet(file: Path, wanted: Collection[str] | None) -> Iterator[tuple[int, dict]]:
    try:
        opened = pq.ParquetFile(file)
        names = opened.schema_arrow.names
    except (ValueError, OSError, pa.ArrowException) as error:
        raise InputError(f"{file}: not a valid Parquet file ({error})") from error
    columns = [name for name in names if wanted is None or name in wanted]
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


def _write(rows: Iterator[tuple[Any, ...]], schema: pa.Schema, target: Path) -> None:
    with pq.ParquetWriter(target, schema, compression="lz4") as writer:
        for batch in batched(rows, _BATCH):
            columns = dict(zip(schema.names, zip(*batch, strict=True), strict=True))
            writer.write_table(pa.table(columns, schema=schema))
