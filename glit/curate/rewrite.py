"""Write rows of finished datasets as a new one: its data files, card and manifest.

Rows stay Arrow tables: no pixel is decoded, and a handful of row groups are in memory at a time, as
some are read while another is written.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from glit.data.bounded_parquet import BoundedParquet
from glit.data.parquet import PINNED
from glit.data.schema import PICTURES, PICTURES_SCHEMA, Columns, with_further
from glit.dataset.card import dataset_card
from glit.dataset.croissant import CROISSANT, croissant
from glit.dataset.manifest import (
    MANIFEST,
    Certificate,
    FileEntry,
    Manifest,
    describe_data_file,
    describe_file,
)
from glit.dataset.reader import Dataset
from glit.dataset.statistics import dataset_statistics
from glit.errors import DatasetError
from glit.runtime.prefetch import map_ahead
from glit.stages.pack import (
    ROW_GROUP_BYTES,
    ROW_OVERHEAD_BYTES,
    PackConfig,
    Piece,
    cut_files,
    writer_options,
)
from glit.storage.store import Store

_READERS, _AHEAD = 2, 4
"""Threads that read while another writes, and row groups that wait."""
_COMPUTE: Any = pyarrow.compute  # its functions are made at run time
_VOID = (
    "the certificate is void here ({}): it is of other data. A random part has that share of wrong "
    "ones on average; certify the new dataset for a claim of its own"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of a dataset."""

    dataset: Dataset
    numbers: np.ndarray
    """Numbers of the rows, ascending."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """Columns that the dataset does not have, and their value in all rows."""


def write_rows(
    folder: Path,
    sources: Sequence[Rows],
    *,
    further: Columns = (),
    pack: PackConfig,
    report: Callable[[int], None],
) -> dict[str, FileEntry]:
    """Write data files; what the manifest says of them.

    Args:
        folder: of the new dataset.
        sources: of datasets of the same columns, but for those that they say.
        further: columns that the first dataset does not have.
        pack: the recipe's, which says how large files and row groups are.
        report: called with so many more rows that are finished.

    Raises:
        DatasetError: a file of a dataset is damaged, or its files differ in their columns.
    """
    read = with_further(sources[0].dataset.schema, further)
    schema = pa.schema([(f.name, _as_packed(f.type)) for f in read], metadata=read.metadata)
    groups = [group for source in sources for group in _groups(source)]
    sizes = [np.full(len(rows), source.dataset.image_bytes(at)) for source, at, rows in groups]
    (folder / "data").mkdir(parents=True)
    described = {}

    def taken(piece: Piece) -> pa.Table:
        return _taken(*groups[piece.chunk], slice(piece.start, piece.stop), schema)

    with ThreadPoolExecutor(_READERS) as pool:
        for file in cut_files(sizes, pack):
            name = f"data/{file.name}"
            tables = map_ahead(pool, taken, file.pieces, most=_AHEAD)
            with pq.ParquetWriter(folder / name, schema, **writer_options(schema)) as writer:
                for table in _row_groups(tables, pack.row_group_rows):
                    writer.write_table(table, row_group_size=len(table))
                    report(len(table))
            described[name] = describe_data_file(folder / name, file.num_rows)
    return described


def _as_packed(kind: pa.DataType) -> pa.DataType:
    """A type as the packer has it; reading Parquet gives the elements of lists another name."""
    if pa.types.is_list(kind):
        return pa.list_(_as_packed(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _as_packed(field.type)) for field in kind])
    return kind


def _groups(source: Rows) -> Iterator[tuple[Rows, int, np.ndarray]]:
    """The row groups that hold some of the rows, and these rows' places in them."""
    places = source.dataset.places
    ends = np.cumsum([place.num_rows for place in places])
    cuts = np.searchsorted(source.numbers, ends)
    for index, rows in enumerate(np.split(source.numbers, cuts[:-1])):
        if len(rows):
            yield source, index, rows - (ends[index] - places[index].num_rows)


def _taken(source: Rows, group: int, rows: np.ndarray, some: slice, schema: pa.Schema) -> pa.Table:
    dataset = source.dataset
    table = dataset.table(row_group=group)
    for name, value in source.further.items():
        column = pa.repeat(pa.scalar(value, schema.field(name).type), len(table))
        table = table.append_column(name, column)
    if {*table.column_names} == {*schema.names}:
        table = table.select(schema.names)
    if not table.schema.equals(schema):
        raise DatasetError(
            f"{dataset.path}/{dataset.places[group].path}: its columns are not those of the other "
            "files; run 'glit verify' and build the dataset again"
        )
    own = rows[some]
    table = table if len(own) == len(table) else table.take(pa.array(own))
    return table.replace_schema_metadata(schema.metadata)


def _row_groups(tables: Iterable[pa.Table], most_rows: int) -> Iterator[pa.Table]:
    """The rows of tables in row groups as the packer cuts them: by rows, and by 64 MB."""
    held: list[pa.Table] = []
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


def write_pictures(
    folder: Path, dataset: Dataset, files: Mapping[str, FileEntry]
) -> dict[str, FileEntry]:
    """Write the rows of ``pictures.parquet`` that samples of a new dataset have; what the manifest
    says of it, empty if the dataset has no such file.

    Args:
        folder: of the new dataset, its data files all written.
        dataset: whose rows it holds.
        files: its files by name.
    """
    if PICTURES not in dataset.manifest.files:
        return {}
    names = [name for name in files if name.startswith("data/")]
    ids = [pq.read_table(folder / name, columns=["sample_id"])["sample_id"] for name in names]
    wanted = pa.chunked_array([chunk for each in ids for chunk in each.chunks], pa.string())
    number = 0
    with (
        pq.ParquetWriter(folder / PICTURES, PICTURES_SCHEMA, **PINNED) as writer,
        Store(dataset.path).local_copy(PICTURES) as path,
        BoundedParquet(path) as file,
    ):
        for batch in file.iter_batches(1024):
            rows = pa.Table.from_batches([batch]).cast(PICTURES_SCHEMA)
            rows = rows.filter(_COMPUTE.is_in(rows["sample_id"], value_set=wanted))
            writer.write_table(rows)
            number += len(rows)
    return {PICTURES: describe_file(folder / PICTURES, number)}


def finish(
    folder: Path,
    manifest: Manifest,
    *,
    name: str,
    caution: str,
    certificates: tuple[Certificate, ...] = (),
) -> None:
    """Write what is made from the manifest, and the manifest last.

    Certificates that the manifest still names were of other data: they are left out, and a warning
    says so.

    Args:
        folder: of the dataset, its Parquet files all written.
        manifest: of it.
        name: of the dataset.
        caution: see :func:`glit.dataset.mini_models.dataset_caution`.
        certificates: of these very files.
    """
    files = dict(manifest.files)
    for void in manifest.certificates:
        if void not in certificates:
            for file in (void.verdicts, void.opinions):
                files.pop(file, None)
            warnings.warn(f"{name}: {_VOID.format(void.claim)}", stacklevel=2)
    manifest = dataclasses.replace(manifest, files=files, certificates=certificates)
    figures = dataset_statistics(Store(folder), manifest)
    (folder / "README.md").write_text(dataset_card(manifest, figures, caution), encoding="utf-8")
    (folder / CROISSANT).write_bytes(croissant(manifest, name=name))
    (folder / MANIFEST).write_bytes(manifest.as_bytes())
