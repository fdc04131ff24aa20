"""A user's picture files: listed once, read by folder and path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb
import pyarrow as pa

from glit.inputs.files import ImageFiles
from glit.inputs.source import Source, entries, find_source
from glit.runtime.prefetch import batched

_LISTED_AT_ONCE = 16_384
_NUMBERED = """
    INSERT INTO files
    SELECT (SELECT coalesce(max(file), 0) FROM files) + row_number() OVER (ORDER BY source, path), *
    FROM (SELECT DISTINCT * FROM listing ANTI JOIN files USING (source, path, size, stamp));
    CREATE OR REPLACE TEMP TABLE listed AS
    SELECT file, source, path FROM files SEMI JOIN listing USING (source, path, size, stamp);
    DROP TABLE listing
"""


class UserPictures:
    """The picture files in a user's folders, tars or tables.

    Args:
        sources: what ``glit build`` takes as images.

    Raises:
        InputError: one of them does not exist.
    """

    def __init__(self, sources: Sequence[str]) -> None:
        self._sources = [find_source(each) for each in sources]
        self._files = [ImageFiles(each.root) for each in self._sources]

    def list_files(self, connection: duckdb.DuckDBPyConnection) -> int:
        """Put all files into the table ``listed`` of the work file, before any is read; return how
        many. A file keeps its number as long as its folder, name, size and time are the same."""
        connection.execute(
            "CREATE OR REPLACE TEMP TABLE listing "
            "(source INTEGER, path VARCHAR, size BIGINT, stamp VARCHAR)"
        )
        for number, source in enumerate(self._sources):
            for some in _named(source, number):
                connection.from_arrow(some).insert_into("listing")
        connection.execute(f"BEGIN; {_NUMBERED}; COMMIT")
        return connection.execute("SELECT count(*) FROM listed").fetchall()[0][0]

    def read(self, source: int, path: str) -> bytes:
        """Return the bytes of a file in a folder.

        Raises:
            OSError: it cannot be read.
        """
        return self._files[source].read(path)

    def place(self, source: int, path: str) -> str:
        """Return the path that a dataset names: relative, with the folder's number if there are
        several."""
        return path if len(self._files) == 1 else f"{source}/{path}"


def _named(source: Source, number: int) -> Iterator[pa.Table]:
    """Yield tables of a source's files, unsorted."""
    wanted = (each for each in entries(source) if each.role == 0 and _can_be_named(each.path))
    for some in batched(wanted, _LISTED_AT_ONCE):
        paths, sizes, stamps, _ = zip(*some, strict=True)
        stamps = [f"{stamp} {source.root}" for stamp in stamps]  # another folder's are others
        columns = {"source": [number] * len(some), "path": paths, "size": sizes, "stamp": stamps}
        yield pa.table(columns)


def _can_be_named(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
