"""DuckDB connections with a memory limit and a folder for temporary data."""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import duckdb

from glit.errors import RunError, first_line

_idle: list[duckdb.DuckDBPyConnection] = []
"""Databases of this process that nothing uses: to open one takes a twentieth of a second."""
_of_parent: list[duckdb.DuckDBPyConnection] = []
"""Databases that a forked process has without their threads: used or closed, they would wait for
ever."""
atexit.register(_idle.clear)


def _leave_to_parent() -> None:
    _of_parent.extend(_idle)
    _idle.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


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
        with _database() as database, database.cursor() as connection:
            connection.execute(f"SET GLOBAL memory_limit = '{memory}'")
            connection.execute(f"SET GLOBAL temp_directory = '{quoted(folder)}'")
            connection.execute("SET enable_progress_bar = false")  # glit has its own
            connection.execute("ATTACH ':memory:' AS block; USE block")
            yield connection
            connection.execute("USE memory; DETACH block")
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


@contextlib.contextmanager
def _database() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database without tables, for the block; kept unless the block fails or has spilled."""
    database = _idle.pop() if _idle else duckdb.connect()
    try:
        yield database
        with contextlib.suppress(duckdb.NotImplementedException):  # it has spilled
            _idle.append(database.execute("SET GLOBAL temp_directory = ''"))
    finally:
        if database not in _idle:
            database.close()


def quoted(path: str | Path) -> str:
    """A path within quotes of SQL."""
    return str(path).replace("'", "''")
