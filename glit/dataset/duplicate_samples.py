"""Find samples that occur more than once in a dataset, with DuckDB."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence

import duckdb
import pyarrow as pa

from glit.errors import RunError, first_line

_SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("file", pa.string()),
        ("sample_id", pa.string()),
        ("source_path", pa.string()),
    ]
)
_BATCH = 65_536
_REPEATED = """
    WITH ranked AS (
        SELECT *, row_number() OVER same AS place, first_value(source_path) OVER same AS first
        FROM seen WINDOW same AS (PARTITION BY sample_id ORDER BY number)
    )
    SELECT file, source_path, first FROM ranked WHERE place > 1 ORDER BY number
"""


class Repeats:
    """Collects a dataset's sample ids on disk and finds repeated ones; must be closed.

    What is more than 512 MB goes to the folder for temporary files.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._connection = duckdb.connect(
            config={"memory_limit": "512MB", "temp_directory": self._folder.name}
        )
        self._connection.execute("SET enable_progress_bar = false")  # glit has its own
        self._connection.register("batch", _SCHEMA.empty_table())
        self._connection.execute("CREATE TABLE seen AS SELECT * FROM batch")
        self._waiting: list[tuple[int, str, str, str]] = []
        self._number = 0

    def close(self) -> None:
        """Remove all data, on the disk too."""
        self._connection.close()
        self._folder.cleanup()

    def add(self, file: str, samples: Sequence[tuple[str, str]]) -> None:
        """Add a file's samples, by ids and source paths.

        Raises:
            RunError: there is no room for them.
        """
        for sample_id, path in samples:
            self._waiting.append((self._number, file, sample_id, path))
            self._number += 1
        if len(self._waiting) >= _BATCH:
            self._insert()

    def found(self) -> Iterator[tuple[str, str, str]]:
        """Yield file and path of every repeated sample, and its first path.

        Raises:
            RunError: there is no room to sort them.
        """
        self._insert()
        try:
            query = self._connection.execute(_REPEATED)
            while rows := query.fetchmany(_BATCH):
                yield from rows
        except duckdb.Error as error:
            raise self._no_room(error) from error

    def _insert(self) -> None:
        columns = list(zip(*self._waiting, strict=True)) or [()] * len(_SCHEMA)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)]
        self._connection.register("batch", pa.table(arrays, schema=_SCHEMA))
        try:
            self._connection.execute("INSERT INTO seen SELECT * FROM batch")
        except duckdb.Error as error:
            raise self._no_room(error) from error
        self._waiting.clear()

    def _no_room(self, error: duckdb.Error) -> RunError:
        return RunError(
            f"{self._folder.name}: cannot look for repeated samples there "
            f"({first_line(error)}); set TMPDIR to a folder with more room"
        )
