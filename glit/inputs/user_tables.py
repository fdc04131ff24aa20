"""A user's file of rows about images, read once and streamed into a Parquet table sorted by path.

:mod:`glit.inputs.user_captions` and :mod:`glit.inputs.published.user_regions` say what a row holds.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import posixpath
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from duckdb import DuckDBPyConnection

from glit.data.bounded_parquet import BoundedParquet
from glit.data.limits import BATCH_BYTES
from glit.errors import InputError, cut, first_line
from glit.inputs.csv_rows import csv_rows, lower_case_note
from glit.inputs.lookup import UserTable
from glit.inputs.region_file import BOXES
from glit.runtime.prefetch import batched_by_weight
from glit.storage.duckdb_temp import spilling
from glit.storage.members import spelt_on_disk
from glit.storage.store import Store

PATH_KEYS = ("path", "file_name", "filename", "image", "source_path")
_KINDS = (".parquet", ".csv", ".tsv", ".jsonl")
_BATCH = 16_384
_DIGITS = 12
TableT = TypeVar("TableT", bound=UserTable)


def by_path(connection: DuckDBPyConnection) -> str:
    """The query that sorts the view ``unsorted``."""
    return "SELECT * FROM unsorted ORDER BY path, line"


def sorted_table(
    kind: type[TableT],
    given: str,
    option: str,
    schema: pa.Schema,
    read: Callable[..., Iterator[tuple[Any, ...]]],
    *,
    image_root: str,
    work: Store,
    version: str = "",
    query: Callable[[DuckDBPyConnection], str] = by_path,
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
        version: of what is written; a table of another one is not taken.
        query: gives the table's rows of the view ``unsorted``.
    """
    with _at_hand(given, option) as file:
        where = given if _is_address(given) else str(file.resolve())
        known = f"{_sha256(file)} {image_root} {where}{version}"
        start = f"{option}-{hashlib.sha256(known.encode()).hexdigest()[:_DIGITS]}-"
        name = _written_before(work, start)
        if name is None:
            rows = read(file, image_root, where=where)
            name = _write_sorted(rows, schema, work, start, query)
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
        path = Path(given)
        if path.is_dir():
            parts_of(path)
        elif not path.is_file():
            raise InputError(f"--{option} {given}: no such file")
        yield path
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
    rows: Iterator[tuple[Any, ...]],
    schema: pa.Schema,
    work: Store,
    start: str,
    query: Callable[[DuckDBPyConnection], str],
) -> str:
    """The table's name."""
    if work.is_local:
        os.makedirs(work.full(""), exist_ok=True)
    with tempfile.TemporaryDirectory(dir=work.full("") if work.is_local else None) as folder:
        unsorted, finished = Path(folder) / "rows.parquet", Path(folder) / "sorted.parquet"
        _write(rows, schema, unsorted)
        with spilling(folder) as connection:
            connection.read_parquet(str(unsorted), hive_partitioning=False).create_view("unsorted")
            made = connection.sql(query(connection))
            made.write_parquet(str(finished), row_group_size=20_480)
        found = _sha256(finished)
        name = f"{start}{found[:_DIGITS]}.parquet"
        with work.atomic(name) as path:
            os.replace(finished, path)
    return name


def parts_of(folder: Path) -> list[Path]:
    """The files of a table that was written as a folder, as Spark does, in order.

    Raises:
        InputError: there is none, they are of several kinds, or the writing was not finished.
    """
    found = [path for path in sorted(folder.iterdir()) if not path.name.startswith((".", "_"))]
    kinds = {path.suffix.lower() for path in found}
    if (folder / "_temporary").exists():
        raise InputError(f"{folder}: has a folder _temporary, so its writer has not finished")
    if any(path.is_dir() for path in found) or len(kinds) != 1 or not kinds <= {*_KINDS}:
        names = ", ".join(path.name for path in found[:3])
        raise InputError(
            f"{folder}: a folder with {cut(names) or 'no file'}; want files of one kind "
            f"({', '.join(_KINDS)}), as Spark writes a table"
        )
    return found


def _rows_of_parts(
    folder: Path, is_read: Callable[[str], bool] | None
) -> Iterator[tuple[int, dict]]:
    """The rows of a folder's files, numbered through."""
    before = 0
    for file in parts_of(folder):
        number = 0
        for number, row in rows_of(file, is_read):
            yield before + number, row
        before += number


def _sha256(file: Path) -> str:
    if file.is_dir():
        digests = " ".join(f"{part.name} {_sha256(part)}" for part in parts_of(file))
        return hashlib.sha256(digests.encode()).hexdigest()
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def rows_of(file: Path, is_read: Callable[[str], bool] | None) -> Iterator[tuple[int, dict]]:
    """Rows of a file and their numbers; of a Parquet file these columns alone, None for all."""
    if file.is_dir():
        return _rows_of_parts(file, is_read)
    suffix = file.suffix.lower()
    if suffix == ".parquet":
        return _parquet(file, is_read)
    if suffix in (".csv", ".tsv"):
        return _csv(file, is_read)
    if suffix != ".jsonl":
        raise InputError(f"{file}: want {', '.join(_KINDS)}")
    return _jsonl(file)


def finder(file: Path, image_root: str, where: str) -> Callable[[str], str]:
    """Return a function that makes a row's path relative to the image root."""
    if _is_address(image_root):
        beside = where.rpartition("/")[0] + "/" if _is_address(where) else ""
        under = image_root.removeprefix(beside) if beside else image_root
        return lambda path: _below(path, image_root, "" if _is_address(under) else under)
    root = Path(image_root)
    beside = "." if _is_address(where) else os.path.relpath(file.resolve().parent, root)

    def find(path: str) -> str:
        found = spelt_on_disk(root, _relative(path, root, beside))
        if "\\" in path and not _exists(root / found):
            return spelt_on_disk(root, _relative(path.replace("\\", "/"), root, beside))
        return found

    return find


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
        return _below_root(path, root) or os.path.relpath(path, root)
    plain = posixpath.normpath(path)
    if beside != "." and not _exists(root / plain):
        return _below_root(str(root / beside / path), root) or plain
    return plain


def _below_root(path: str, root: Path) -> str:
    """A path from the root, which may be a link, as the path may lead through one; empty for a path
    that leads out."""
    found = os.path.relpath(path, root)
    if found.startswith(".."):
        folder, name = os.path.split(path)
        found = os.path.relpath(os.path.join(_real(folder), name), _real(str(root)))
    return "" if found.startswith("..") else found


@lru_cache(maxsize=1024)
def _real(folder: str) -> str:
    """A folder without links; some files have millions of rows of it."""
    return os.path.realpath(folder)


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
            if default is not None and isinstance(value, str) and value.strip() in EMPTY_CELLS:
                return default
            if not isinstance(value, str):
                raise InputError(
                    f"{file}: row {number} has {key} = {str(value)[:60]!r} "
                    f"({type(value).__name__}), want one text"
                )
            return value
    raise lacking(row, [keys], file, number)


def lacking(row: dict, wanted: Sequence[tuple[str, ...]], file: Path, number: int) -> InputError:
    """The error of a row that has none of the keys of some kinds; of a table, all rows have not."""
    is_table = file.is_file() and file.suffix.lower() in (".csv", ".tsv", ".parquet")
    has = "has the columns" if is_table else f"row {number} has the keys"
    wants = " and ".join(f"one of {', '.join(keys)}" for keys in wanted)
    note = lower_case_note(map(str, row), [key for keys in wanted for key in keys])
    return InputError(f"{file}: {has} {cut(', '.join(map(str, row)))}; want {wants}{note}")


def _jsonl(file: Path) -> Iterator[tuple[int, dict]]:
    number = 0
    with file.open(encoding="utf-8-sig") as lines:
        try:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise InputError(f"{file}: row {number} is no JSON object")
                    yield number, row
        except (ValueError, RecursionError) as error:  # a number of 4,301 digits is one
            what = "nested too deep" if isinstance(error, RecursionError) else cut(str(error))
            raise InputError(
                f"{file}: not valid JSON lines in UTF-8, at row {number} ({what})"
            ) from error


EMPTY_CELLS = frozenset(("nan", "NaN", "None", "NULL", "null", "<NA>"))
"""Texts by which pandas, NumPy and SQL write a cell without a value."""


def _csv(file: Path, is_read: Callable[[str], bool] | None) -> Iterator[tuple[int, dict]]:
    with file.open(encoding="utf-8-sig", newline="") as stream:
        is_known = is_read or frozenset((*PATH_KEYS, "label", "score", *BOXES)).__contains__
        yield from csv_rows(stream, str(file), is_known=is_known)


def _parquet(file: Path, is_read: Callable[[str], bool] | None) -> Iterator[tuple[int, dict]]:
    try:
        opened = BoundedParquet(file)
        names = opened.schema_arrow.names
    except (ValueError, OSError, pa.ArrowException) as error:
        raise InputError(f"{file}: not a valid Parquet file ({error})") from error
    columns = [name for name in names if is_read is None or is_read(name)]
    number = 0
    try:
        for batch in opened.iter_batches(_BATCH, columns=columns):
            for row in batch.to_pylist():
                number += 1
                yield number, row
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(
            f"{file}: cannot be read after row {number} ({first_line(error)}); "
            "fetch or write it again"
        ) from error


def _chars(row: tuple[Any, ...]) -> int:
    return sum(len(value) for value in row if isinstance(value, str))


def _write(rows: Iterator[tuple[Any, ...]], schema: pa.Schema, target: Path) -> None:
    with pq.ParquetWriter(target, schema, compression="lz4") as writer:
        for batch in batched_by_weight(rows, _BATCH, weight=_chars, heaviest=BATCH_BYTES):
            columns = dict(zip(schema.names, zip(*batch, strict=True), strict=True))
            writer.write_table(pa.table(columns, schema=schema))
