"""SQL over a dataset's files, by DuckDB."""

from __future__ import annotations

from typing import Any

import duckdb

from glit.dataset.manifest import read_manifest
from glit.errors import UserError
from glit.storage import Store


def query(output: str, sql: str) -> duckdb.DuckDBPyRelation:
    """A relation over the views ``samples``, ``drops`` and ``duplicates``.

    Raises:
        UserError: no finished dataset, or DuckDB does not accept the statement.
    """
    dataset = Store(output)
    files = [dataset.full(name) for name in sorted(read_manifest(dataset)["files"])]
    connection = duckdb.connect()
    views = {
        "samples": [name for name in files if "/data/train-" in name],
        "drops": [name for name in files if name.endswith("/drops.parquet")],
        "duplicates": [name for name in files if name.endswith("/duplicates.parquet")],
    }
    try:
        for view, paths in views.items():
            connection.read_parquet(paths, hive_partitioning=False).create_view(view)
        found: Any = connection.sql(sql)
        if found is not None:
            found = found.materialize()  # mistakes in the data show now, not when it is printed
    except duckdb.Error as error:
        raise UserError(
            f"query: {str(error).splitlines()[0]} (views: samples, drops, duplicates)"
        ) from error
    if found is None:
        raise UserError("query: the statement gives no rows; want a SELECT")
    return found
