"""DuckDB that has no room."""

from __future__ import annotations

import pytest

from glit.errors import RunError
from glit.storage.duckdb_temp import spilling

SORTED = (
    "SELECT max(b) FROM (SELECT md5(i::VARCHAR) AS b FROM range({n}) t(i) ORDER BY b LIMIT {n})"
)


def test_what_does_not_fit_into_memory_goes_to_the_folder_which_may_have_no_room(tmp_path):
    sorts = SORTED.format(n=1_000_000)
    with spilling(tmp_path, memory="40MB") as connection:
        connection.execute("SET threads = 1")  # each wants some memory
        ((largest,),) = connection.execute(sorts).fetchall()
    assert len(largest) == 32 and not list(tmp_path.iterdir())
    with (
        pytest.raises(RunError, match=f"{tmp_path}: DuckDB cannot sort there .* more room"),
        spilling(tmp_path, memory="40MB") as connection,
    ):
        connection.execute("SET max_temp_directory_size = '1MB'")
        connection.execute(sorts)


def test_rows_that_are_too_large_to_sort_are_said_so(tmp_path):
    with (
        pytest.raises(RunError, match="its rows are too large to sort in 40MB; shorten them"),
        spilling(tmp_path, memory="40MB") as connection,
    ):
        connection.execute(
            "COPY (SELECT repeat('x', 200000) || i AS t FROM range(4000) r(i) ORDER BY t) TO "
            f"'{tmp_path / 'sorted.parquet'}'"
        )
