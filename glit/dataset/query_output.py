"""Write a query's result as CSV, JSON or Parquet."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal

import duckdb
import pyarrow.parquet as pq

from glit.errors import UserError

Format = Literal["csv", "json", "parquet"]
_ROWS_AT_A_TIME = 2048
_PLAIN_TYPES = re.compile(r"(u?int\d+|bool|(large_)?string(_view)?)$")
"""Arrow types whose values are written as they are."""


def write_answer(found: duckdb.DuckDBPyRelation, out: BinaryIO, form: Format) -> None:
    """Write rows, a few thousand in memory at a time.

    Args:
        found: of :func:`glit.dataset.query.query`.
        out: opened for bytes.
        form: what to write.
    """
    _WRITERS[form](found, out)


def answer_format(path: Path) -> Format:
    """The output format of a file, by its suffix.

    Raises:
        UserError: it has another.
    """
    suffix = path.suffix.removeprefix(".")
    if suffix not in ("csv", "json", "parquet"):
        raise UserError(f"-o {path}: want a name that ends in .csv, .json or .parquet")
    return suffix


def _rows(
    found: duckdb.DuckDBPyRelation, cell: Callable[[Any], Any]
) -> Iterator[Iterator[tuple[Any, ...]]]:
    """Some thousand rows at a time, their values as ``cell`` makes them."""
    with found.to_arrow_reader(_ROWS_AT_A_TIME) as batches:
        for batch in batches:
            columns = (
                column.to_pylist()
                if _PLAIN_TYPES.match(str(column.type))
                else map(cell, column.to_pylist())
                for column in batch.columns
            )
            yield zip(*columns, strict=True)


def _csv(found: duckdb.DuckDBPyRelation, out: BinaryIO) -> None:
    text = io.TextIOWrapper(out, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(found.columns)
    for rows in _rows(found, _cell):
        writer.writerows(rows)
    text.detach()


def _cell(value: Any) -> Any:
    """Lists and structs are JSON inside a cell; bytes are base64."""
    plain = _plain(value)
    return json.dumps(plain, ensure_ascii=False) if isinstance(plain, dict | list) else plain


def _json(found: duckdb.DuckDBPyRelation, out: BinaryIO) -> None:
    """A list of objects, one a line."""
    names = found.columns
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=str).encode
    first = b"[\n"
    for rows in _rows(found, _plain):
        objects = (encode(dict(zip(names, row, strict=True))) for row in rows)
        text = ",\n".join(objects)
        out.write(first + text.encode())
        first = b",\n"
    out.write(b"[\n]\n" if first == b"[\n" else b"\n]\n")


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold: no NaN, no infinity, no bytes."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _parquet(found: duckdb.DuckDBPyRelation, out: BinaryIO) -> None:
    with (
        found.to_arrow_reader(_ROWS_AT_A_TIME) as batches,
        pq.ParquetWriter(out, batches.schema, compression="zstd") as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)


_WRITERS: dict[Format, Callable[[Any, BinaryIO], None]] = {
    "csv": _csv,
    "json": _json,
    "parquet": _parquet,
}
