"""Look up existing captions: in the user's file, or in ``NAME.txt`` beside the image, or else in
``NAME.caption``.

See :mod:`glit.backends.user_tables` for the user's file.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from glit.backends.base import PLAIN_BYTES, Backend
from glit.backends.protocols import ReadText
from glit.backends.user_tables import NO_ROW, UserTable
from glit.data.captions import LONG
from glit.data.records import Drop
from glit.storage.members import ALIKE, stem

SUFFIX = ".txt"
NO_TEXT = "holds half a character (a lone surrogate), which no UTF-8 text can; write it again"


@dataclass(frozen=True, slots=True, kw_only=True)
class BroughtCaptions(UserTable):
    """Captions of the user's file. Its table has a column ``kind`` where an image has captions of
    several kinds; null is ``long``."""

    strips: ClassVar[bool] = False
    kinds: tuple[str, ...] = ()
    """The kinds that are looked up; empty for a file with one caption an image."""

    def find(self, paths: Sequence[str], read_text: ReadText) -> list[str | dict[str, str] | Drop]:
        """By image its caption; with ``kinds`` those that it has of them, in their order. Without
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
            return Drop(reason="no_caption", message=f"{self.name}: row {line} {NO_TEXT}")
        return caption


class SidecarCaptions:
    """Captions in text files beside the images."""

    name = "sidecar"
    strips = True

    def find(self, paths: Sequence[str], read_text: ReadText) -> list[str | Drop]:
        return [self._read(stem(path), read_text) for path in paths]

    def _read(self, name: str, read_text: ReadText) -> str | Drop:
        for suffix in (SUFFIX, *ALIKE[SUFFIX]):
            try:
                text = read_text(name + suffix)
            except (OSError, UnicodeError) as error:
                return Drop(reason="no_caption", message=f"{name}{suffix} cannot be read: {error}")
            if text is not None:
                return text
        return Drop(reason="no_caption", message=f"there is no {posixpath.basename(name)}{SUFFIX}")


def _provided(brought: BroughtCaptions) -> BroughtCaptions:
    return brought


PROVIDED = Backend(
    make=_provided,
    reads="nothing",
    brings="captions",
    needs_model=False,
    process_bytes=PLAIN_BYTES,
)
SIDECAR = Backend(
    make=lambda _: SidecarCaptions(),
    reads="file",
    beside=SUFFIX,
    needs_model=False,
    process_bytes=PLAIN_BYTES,
)
