"""SQL over a dataset's files, by DuckDB."""

from __future__ import annotations

from typing import Any

import duckdb

from glit.dataset.reader import Dataset
from glit.errors import UserError


def query(path: str, sql: str) -> duckdb.DuckDBPyRelation:
    """A relation over the views ``samples``, ``drops`` and ``duplicates``.

    Raises:
        UserError: no finished dataset, or DuckDB does not accept the statement.
        DatasetError: a file of the dataset is missing or damaged.
    """
    dataset = Dataset(path)
    connection = duckdb.connect()
    views = {
        "samples": dataset.files,
        "drops": ("drops.parquet",),
        "duplicates": ("duplicates.parquet",),
    }
    try:
        for view, names in views.items():
            paths = [dataset.full(name) for name in names]
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
