"""Parquet tables in the work folder: written whole or not at all, or row by row."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from glit.data.parquet import PINNED
from glit.storage.checksummed_parquet import SealError, read_sealed, write_sealed

_ROWS = 16_384
"""Rows of a row group."""


def write_whole(table: pa.Table, path: Path) -> None:
    """Write a table with a digest: one that exists is complete."""
    temporary = path.with_suffix(".tmp")
    write_sealed(table, temporary)
    temporary.replace(path)


def read_whole(path: Path) -> pa.Table | None:
    """Return a table that :func:`write_whole` wrote; None if there is none that is whole."""
    try:
        return read_sealed(path.read_bytes()).read()
    except (OSError, SealError, pa.ArrowException):
        return None


class GrowingTable:
    """A Parquet file to which rows are appended. A file of an earlier run is overwritten.

    Args:
        path: of the file.
        schema: its columns.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self._writer = pq.ParquetWriter(path, schema, **PINNED)
        self._waiting: list[pa.Table] = []

    def append(self, table: pa.Table) -> None:
        """Add rows at the end."""
        self._waiting.append(table)
        if sum(map(len, self._waiting)) >= _ROWS:
            self._flush()

    def close(self) -> None:
        """Write what waits and the footer; then the file can be read."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting))
        self._waiting = []


class StoredRows:
    """A Parquet file of the work folder, read by the numbers of its rows.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetFile(path)
        self._number = 0
        """Of the row group that is held."""
        self._held: pa.Table | None = None
        self._ends: list[int] = []
        for group in range(self._file.num_row_groups):
            self._ends.append(len(self) + self._file.metadata.row_group(group).num_rows)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def rows(self, first: int, number: int) -> pa.Table:
        """Return rows in order; fewer at the end of the table."""
        parts = [self._file.schema_arrow.empty_table()]
        start = 0
        for group, end in enumerate(self._ends):
            low, high = max(first, start), min(first + number, end)
            if low < high:
                parts.append(self._group(group).slice(low - start, high - low))
            start = end
        return pa.concat_tables(parts)

    def _group(self, number: int) -> pa.Table:
        if self._held is None or self._number != number:
            self._held, self._number = self._file.read_row_group(number), number
        return self._held
