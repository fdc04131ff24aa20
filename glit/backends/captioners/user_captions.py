"""Look up existing captions: in the user's file, or in ``NAME.txt`` beside the image.

See :mod:`glit.backends.user_tables` for the user's file.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from glit.backends.base import PLAIN_BYTES, Backend
from glit.backends.protocols import ReadText
from glit.backends.user_tables import NO_ROW, UserTable
from glit.data.records import Drop
from glit.shards import stem

SUFFIX = ".txt"
NO_TEXT = "holds half a character (a lone surrogate), which no UTF-8 text can; write it again"


@dataclass(frozen=True, slots=True, kw_only=True)
class BroughtCaptions(UserTable):
    """Captions of the user's file."""

    def find(self, paths: Sequence[str], read_text: ReadText) -> list[str | Drop]:
        found: list[str | Drop] = []
        rows = self.rows(paths)
        for path in paths:
            captions: dict[str | None, int] = {}
            for row in rows.get(path, ()):
                captions.setdefault(row["caption"], row["line"])
            found.append(self._choose(path, captions))
        return found

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
