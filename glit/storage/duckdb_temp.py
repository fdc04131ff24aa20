"""DuckDB connections with a memory limit and a folder for temporary data."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb

from glit.errors import RunError, first_line


@contextlib.contextmanager
def spilling(folder: str | Path, *, memory: str = "512MB") -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a DuckDB connection with a memory limit and a temporary folder, for the block.

    Args:
        folder: on a disk with room for what does not fit into memory.
        memory: the limit.

    Raises:
        RunError: DuckDB cannot go on in the block, as where the disk is full.
    """
    try:
        config: dict[str, Any] = {"memory_limit": memory, "temp_directory": str(folder)}
        with duckdb.connect(config=config) as connection:
            connection.execute("SET enable_progress_bar = false")  # glit has its own
            yield connection
    except duckdb.Error as error:
        memory_alone = isinstance(error, duckdb.OutOfMemoryException) and "offload" not in str(
            error
        )
        todo = (
            f"its rows are too large to sort in {memory}; shorten them, or give them in parts"
            if memory_alone
            else "give that disk more room and run the same command again"
        )
        raise RunError(
            f"{folder}: DuckDB cannot sort there ({first_line(error)}); {todo}"
        ) from error


def quoted(path: str | Path) -> str:
    """A path within quotes of SQL."""
    return str(path).replace("'", "''")
