"""Write a query's result as CSV, JSON or Parquet."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, Literal

import duckdb
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from glit.errors import UserError

_COMPUTE: Any = pyarrow.compute  # its functions are made at run time
Format = Literal["csv", "json", "parquet"]
_ROWS_AT_A_TIME = 2048
_PLAIN_TYPES = re.compile(r"(u?int\d+|bool|(large_)?string(_view)?)$")
"""Arrow types whose values are written as they are."""
_SAME_IN_SQL = re.compile(r"(VARCHAR|BOOLEAN|U?(TINY|SMALL|BIG)INT|U?INTEGER)$")
"""DuckDB's types whose values its JSON has as Python's does."""
_ESCAPE = re.compile(rb"\\(u[0-9A-F]{4}|.)")


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
    first = b"[\n"
    for objects in _objects_in_sql(found) if _is_same_in_sql(found) else _objects(found):
        out.write(first)
        out.write(objects)
        first = b",\n"
    out.write(b"[\n]\n" if first == b"[\n" else b"\n]\n")


def _objects(found: duckdb.DuckDBPyRelation) -> Iterator[bytes]:
    """Some thousand objects at a time."""
    names = found.columns
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_number).encode
    for rows in _rows(found, _plain):
        yield ",\n".join(encode(dict(zip(names, row, strict=True))) for row in rows).encode()


def _is_same_in_sql(found: duckdb.DuckDBPyRelation) -> bool:
    """Return whether DuckDB writes the values as Python does: whole numbers, texts, booleans."""
    names, types = found.columns, map(str, found.types)
    return len({*names}) == len(names) and all(map(_SAME_IN_SQL.match, types))


def _objects_in_sql(found: duckdb.DuckDBPyRelation) -> Iterator[bytes]:
    """Do as :func:`_objects`, several times as fast, if :func:`_is_same_in_sql`."""
    parts = []
    for number, name in enumerate(found.columns, 1):
        key = json.dumps(name, ensure_ascii=False).replace("'", "''")
        parts.append(f"'{', ' if parts else '{'}{key}: ', coalesce(to_json(#{number}), 'null')")
    with found.select(f"concat({', '.join(parts)}, '}}')").to_arrow_reader(
        _ROWS_AT_A_TIME
    ) as batches:
        for batch in batches:
            whole = pa.ListArray.from_arrays(pa.array([0, len(batch)], pa.int32()), batch.column(0))
            objects = _COMPUTE.binary_join(whole, ",\n")[0].as_buffer().to_pybytes()
            # DuckDB has capitals in the numbers of control characters; one byte is found faster
            if b"\\" in objects and b"\\u" in objects:
                objects = _ESCAPE.sub(lambda found: found[0].lower(), objects)
            yield objects


def _number(value: Any) -> Any:
    """A decimal or a sum of whole numbers as a number; what else JSON has no type for as text."""
    if not isinstance(value, Decimal):
        return str(value)
    return float(value) if "." in str(value) else int(value)


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
