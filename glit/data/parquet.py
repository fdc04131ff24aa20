"""Parquet written with pinned settings, so that equal tables give equal bytes; and read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

PINNED: dict[str, Any] = {
    "version": "2.6",
    "data_page_version": "1.0",
    "compression": "zstd",
    "compression_level": 3,
    "use_dictionary": False,
    "write_statistics": True,
    "write_page_index": True,
    "store_schema": True,
}


def write_parquet(table: pa.Table, path: Path, **options: Any) -> None:
    """Write a table in one file; ``options`` change single settings."""
    pq.write_table(table, path, **{**PINNED, **options})


def read_parquet_file(source: Any, **options: Any) -> pa.Table:
    """Read one file as pyarrow does, but take no column from ``key=value`` in the names of its
    folders.

    Args:
        source: a path, or an open file.
        options: of :func:`pyarrow.parquet.read_table`.
    """
    return pq.read_table(source, partitioning=None, **options)  # pyright: ignore[reportArgumentType]
