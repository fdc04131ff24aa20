"""The work file: one DuckDB database, which holds what a stopped search has done.

A part of the search is one transaction, so a part that is there is whole. What does not fit into
DuckDB's memory lies beside the file, so that memory does not grow with the rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import duckdb

from glit.curate.attaching import lookup
from glit.errors import RunError, first_line

_MEMORY = "256MB"
_TABLES = f"""
    CREATE TABLE samples (
        sample INTEGER, sha256 VARCHAR, pixels_sha256 VARCHAR, stem VARCHAR,
        width INTEGER, height INTEGER
    );
    CREATE TABLE files (file INTEGER, source INTEGER, path VARCHAR, size BIGINT, stamp VARCHAR);
    CREATE TABLE hashed (
        file INTEGER, sha256 VARCHAR, pixels_sha256 VARCHAR, fault VARCHAR
    );
    CREATE TABLE compared (file INTEGER);
    CREATE TABLE alike (
        sample INTEGER, file INTEGER, width INTEGER, height INTEGER, mirrored BOOLEAN,
        turned INTEGER, "left" DOUBLE, top DOUBLE, "right" DOUBLE, bottom DOUBLE,
        shown DOUBLE, residual DOUBLE, colours VARCHAR
    );
    {lookup.TABLES}
"""


@contextlib.contextmanager
def work_file(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a work file, for the block; create it if it is not there.

    Raises:
        RunError: DuckDB cannot go on in the block: the disk is full, or the file is damaged.
    """
    try:
        with duckdb.connect(str(path), config={"memory_limit": _MEMORY}) as connection:
            connection.execute("SET enable_progress_bar = false")  # glit has its own
            if not connection.execute("SELECT count(*) FROM duckdb_tables()").fetchall()[0][0]:
                connection.execute(f"BEGIN; {_TABLES} COMMIT")
            yield connection
    except duckdb.Error as error:
        raise RunError(
            f"{path}: DuckDB cannot read or write it ({first_line(error)}); give that disk more "
            "room, or remove the file if it is damaged, and run the same command again"
        ) from error
