"""The rows of a user's file by image, in the table sorted by path that
:mod:`glit.inputs.user_tables` writes; a worker reads only the rows of the paths it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow.compute as pc

from glit.data.captions import LONG
from glit.data.parquet import read_parquet_file
from glit.data.records import Drop
from glit.storage.store import Store

NO_ROW = "has no row for"
_NO_TEXT = "holds half a character (a lone surrogate), which no UTF-8 text can; write it again"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class BroughtCaptions(UserTable):
    """Captions of the user's file. Its table has a column ``kind`` where an image has captions of
    several kinds; null is ``long``."""

    strips: ClassVar[bool] = False
    kinds: tuple[str, ...] = ()
    """The kinds that are looked up; empty for a file with one caption an image."""

    def find(self, paths: Sequence[str], read_text: object) -> list[str | dict[str, str] | Drop]:
        """Return each image's caption; with ``kinds`` those that it has of them, in order. Without
        one of the first kind it is dropped."""
        rows = self.rows(paths)
        look_up = self._of_kinds if self.kinds else self._choose
        return [look_up(path, rows.get(path, ())) for path in paths]

    def _of_kinds(self, path: str, rows: Sequence[dict[str, Any]]) -> dict[str, str] | Drop:
        found: dict[str, str] = {}
        for kind in self.kinds:
            own = [row for row in rows if (row.get("kind") or LONG) == kind]
            if not own and found:
                continue
            what = f" of the kind {kind!r}" if rows else ""
            text = self._choose(path, own, what)
            if isinstance(text, Drop):
                return text
            found[kind] = text
        return found

    def _choose(self, path: str, rows: Sequence[dict[str, Any]], what: str = "") -> str | Drop:
        captions: dict[str | None, int] = {}
        for row in rows:
            captions.setdefault(row["caption"], row["line"])
        if not captions:
            has_none = f"has no caption{what} for" if what else NO_ROW
            return Drop(reason="no_caption", message=f"{self.name} {has_none} {path}")
        if len(captions) > 1:
            lines = ", ".join(str(line) for line in sorted(captions.values()))
            return Drop(
                reason="ambiguous_caption",
                message=f"{self.name} has {len(captions)} different captions{what} (rows {lines})",
            )
        caption, line = next(iter(captions.items()))
        if caption is None:
            return Drop(reason="no_caption", message=f"{self.name}: row {line} {_NO_TEXT}")
        return caption
