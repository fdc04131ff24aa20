"""Write data files: a schema, tables that fill it, and files cut as a build cuts them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from glit.data.schema import Columns, with_further
from glit.dataset.manifest import FileEntry, describe_data_file
from glit.dataset.reader import Dataset
from glit.errors import InputError
from glit.runtime.prefetch import map_ahead
from glit.stages.pack import (
    ROW_GROUP_BYTES,
    ROW_OVERHEAD_BYTES,
    PackConfig,
    Piece,
    cut_files,
    writer_options,
)

Report = Callable[[int], None]
"""Called with so many more rows that are finished."""
_READERS, _AHEAD = 2, 4
"""Threads that read while another writes, and row groups that wait."""
_COMPUTE: Any = pyarrow.compute  # its functions are made at run time


def write_tables(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> FileEntry:
    """Write a data file, a row group for each table; return the manifest's entry."""
    number = 0
    with pq.ParquetWriter(path, schema, **writer_options(schema)) as writer:
        for table in tables:
            if len(table):
                writer.write_table(table, row_group_size=len(table))
            number += len(table)
    return describe_data_file(path, number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Some rows of a dataset, which another dataset gets."""

    dataset: Dataset
    numbers: np.ndarray
    """Numbers of the rows, ascending."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Columns that the dataset does not have, and their value in all rows."""


def write_rows(
    folder: Path,
    sources: Sequence[Rows],
    *,
    added: Columns = (),
    pack: PackConfig,
    report: Report,
) -> dict[str, FileEntry]:
    """Write data files, cut as a build cuts them; return the manifest's entries.

    Args:
        folder: of the new dataset.
        sources: of datasets of the same columns, but for those that they say.
        added: columns that datasets may lack.
        pack: the recipe's, which says how large files and row groups are.
        report: see :data:`Report`.

    Raises:
        DatasetError: a file of a dataset is damaged.
    """
    schema = packed_schema(sources[0].dataset, added)
    groups = [group for source in sources for group in _groups(source)]
    sizes = [np.full(len(rows), source.dataset.image_bytes(at)) for source, at, rows in groups]
    (folder / "data").mkdir(parents=True)

    def piece_of(piece: Piece) -> pa.Table:
        source, index, rows = groups[piece.chunk]
        table = filled(source.dataset, index, schema, source.values)
        own = rows[piece.start : piece.stop]
        return table if len(own) == len(table) else table.take(pa.array(own))

    def cut(pieces: Sequence[Piece]) -> Iterator[pa.Table]:
        for table in _row_groups(map_ahead(pool, piece_of, pieces, most=_AHEAD), pack):
            yield table
            report(len(table))

    with ThreadPoolExecutor(_READERS) as pool:
        return {
            name: write_tables(folder / name, schema, cut(file.pieces))
            for file in cut_files(sizes, pack)
            for name in [f"data/{file.name}"]
        }


def packed_schema(dataset: Dataset, added: Columns) -> pa.Schema:
    """The schema of new data files: the dataset's columns, then added ones that it lacks.

    Raises:
        InputError: a column of the dataset has such a name and another type.
    """
    own = dataset.schema
    for name, kind in added:
        if name in own.names and own.field(name).type != kind:
            raise InputError(f"{dataset.path}: has a column {name} that is not glit's")
    read = with_further(own, tuple(each for each in added if each[0] not in own.names))
    return pa.schema([(f.name, _as_packed(f.type)) for f in read], metadata=read.metadata)


def _as_packed(kind: pa.DataType) -> pa.DataType:
    """A type as the packer has it; reading Parquet gives the elements of lists another name."""
    if pa.types.is_list(kind):
        return pa.list_(_as_packed(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _as_packed(field.type)) for field in kind])
    return kind


def _groups(source: Rows) -> Iterator[tuple[Rows, int, np.ndarray]]:
    """Yield each row group that holds any of the wanted rows, with their positions in it."""
    places = source.dataset.places
    ends = np.cumsum([place.num_rows for place in places])
    cuts = np.searchsorted(source.numbers, ends)
    for index, rows in enumerate(np.split(source.numbers, cuts[:-1])):
        if len(rows):
            yield source, index, rows - (ends[index] - places[index].num_rows)


def filled(dataset: Dataset, index: int, schema: pa.Schema, values: Mapping[str, Any]) -> pa.Table:
    """A row group in the columns of new data files; those that it lacks have one value."""
    table = dataset.table(row_group=index)
    for name in schema.names:
        if name not in table.column_names:
            value = pa.scalar(values.get(name), schema.field(name).type)
            table = table.append_column(name, pa.repeat(value, len(table)))
    return table.select(schema.names).replace_schema_metadata(schema.metadata)


def _row_groups(tables: Iterable[pa.Table], pack: PackConfig) -> Iterator[pa.Table]:
    """The rows of tables in row groups as the packer cuts them: by rows, and by 64 MB."""
    held: list[pa.Table] = []
    most_rows = pack.row_group_rows
    rows = size = 0
    for table in tables:
        images = _COMPUTE.struct_field(table["image"], "bytes")
        stored = _COMPUTE.fill_null(_COMPUTE.binary_length(images), 0).to_numpy()
        total = np.concatenate([[0], np.cumsum(stored + ROW_OVERHEAD_BYTES)])
        start = 0
        while start < len(table):
            full = int(np.searchsorted(total, total[start] + ROW_GROUP_BYTES - size))
            stop = min(len(table), start + most_rows - rows, full)
            held.append(table.slice(start, stop - start))
            rows, size = rows + stop - start, size + int(total[stop] - total[start])
            if rows == most_rows or size >= ROW_GROUP_BYTES:
                yield pa.concat_tables(held).combine_chunks()
                held, rows, size = [], 0, 0
            start = stop
    if held:
        yield pa.concat_tables(held).combine_chunks()
