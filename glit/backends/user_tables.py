"""The rows of a file that a user gave, as a table sorted by image path.

:mod:`glit.inputs.user_tables` writes such tables; a worker reads only the rows of the paths it is
asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from glit.data.parquet import read_parquet_file
from glit.storage.store import Store

NO_ROW = "has no row for"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserTable:
    """A user's file, by image path. Can be pickled."""

    name: str
    """Name of the user's file."""
    table: str
    """Address of the table sorted by path."""

    def rows(self, paths: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """The rows of some images, in the order of the file."""
        if not paths:
            return {}
        path = pc.field("path")
        folder, _, name = self.table.rpartition("/")
        within = (path >= min(paths)) & (path <= max(paths))
        wanted = read_parquet_file(Store(folder or "/").for_arrow(name), filters=within)
        found: dict[str, list[dict[str, Any]]] = {}
        for row in wanted.to_pylist():
            found.setdefault(row["path"], []).append(row)
        return found
