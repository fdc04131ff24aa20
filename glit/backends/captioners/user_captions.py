"""Look up existing captions: in the user's file, or in ``NAME.txt`` beside the image.

:mod:`glit.pipeline.user_captions` has sorted the user's file by path into a Parquet table, of
which a worker reads only the rows of the paths it is asked for.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.compute as pc
import pyarrow.parquet as pq

from glit.backends.base import PLAIN_BYTES, Backend
from glit.backends.protocols import ReadText
from glit.data.records import Drop
from glit.shards import stem
from glit.storage.store import Store

SUFFIX = ".txt"
NO_ROW = "has no row for"
NO_TEXT = "holds half a character (a lone surrogate), which no UTF-8 text can; write it again"


@dataclass(frozen=True, slots=True, kw_only=True)
class BroughtCaptions:
    """Captions of the user's file, by image path. Can be pickled."""

    name: str
    """Name of the user's file."""
    table: str
    """Address of the table sorted by path."""

    def find(self, paths: Sequence[str], read_text: ReadText) -> list[str | Drop]:
        if not paths:
            return []
        path = pc.field("path")
        folder, _, name = self.table.rpartition("/")
        within = (path >= min(paths)) & (path <= max(paths))
        file = Store(folder or "/").for_arrow(name)
        wanted = pq.read_table(file, filters=within)
        rows: dict[str, dict[str | None, int]] = {}
        for row in wanted.to_pylist():
            rows.setdefault(row["path"], {}).setdefault(row["caption"], row["line"])
        return [self._choose(path, rows.get(path, {})) for path in paths]

    def _choose(self, path: str, captions: dict[str | None, int]) -> str | Drop:
        if not captions:
            return Drop(reason="no_caption", message=f"{self.name} {NO_ROW} {path}")
        if len(captions) > 1:
            lines = ", ".join(str(line) for line in sorted(captions.values()))
            return Drop(
                reason="ambiguous_caption",
                message=f"{self.name} has {len(captions)} different captions (rows {lines})",
            )
        caption, line = next(iter(captions.items()))
        if caption is None:
            return Drop(reason="no_caption", message=f"{self.name}: row {line} {NO_TEXT}")
        return caption


class SidecarCaptions:
    """Captions in text files beside the images."""

    name = "sidecar"

    def find(self, paths: Sequence[str], read_text: ReadText) -> list[str | Drop]:
        return [self._read(stem(path) + SUFFIX, read_text) for path in paths]

    def _read(self, beside: str, read_text: ReadText) -> str | Drop:
        try:
            text = read_text(beside)
        except (OSError, UnicodeError) as error:
            return Drop(reason="no_caption", message=f"{beside} cannot be read: {error}")
        if text is None:
            return Drop(reason="no_caption", message=f"there is no {posixpath.basename(beside)}")
        return text.strip()


def _provided(brought: BroughtCaptions) -> BroughtCaptions:
    return brought


PROVIDED = Backend(make=_provided, reads="nothing", needs_model=False, process_bytes=PLAIN_BYTES)
SIDECAR = Backend(
    make=lambda _: SidecarCaptions(),
    reads="file",
    beside=SUFFIX,
    needs_model=False,
    process_bytes=PLAIN_BYTES,
)
