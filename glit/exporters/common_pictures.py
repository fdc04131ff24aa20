"""Pictures of formats that readers of an export do not decode: encoded again, or counted."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace

from glit.dataset.manifest import RecordedRecipe
from glit.dataset.row import Row
from glit.images import encode_png, upright_file
from glit.images.location import removed_note, without_location

_COMMON = (".jpg", ".jpeg", ".png", ".webp")
"""Suffixes that open_clip takes from a tar, and that every reader decodes."""
_LESS_READ = {"webdataset": "open_clip takes only jpg, jpeg, png and webp from a tar"}
_AVIF = "Pillow before 11.3 and many builds of OpenCV do not read avif"


class CommonPictures:
    """A map over rows: pictures lose their coordinates unless ``pack.keep_location`` kept them;
    those that are not JPEG, PNG or WebP are counted, and become PNG of the pixels that models are
    given, if that is wanted."""

    def __init__(self, recipe: RecordedRecipe, *, reencode: bool) -> None:
        self._keep_location = recipe.table("pack").get("keep_location")
        self._reencode = reencode
        self._others: dict[str, str] = {}
        """By sample, the suffix of its picture."""
        self._located = set[str]()
        """Samples whose picture said where it was taken."""

    def __call__(self, row: Row) -> Row:
        """The row, with a picture that readers decode."""
        if row.image is None:
            return row
        if not self._keep_location and (plain := without_location(row.image)) is not row.image:
            self._located.add(row.sample_id)
            row = replace(row, image=plain)
        data = row.image
        if data is None or is_common(data):
            return row
        if self._reencode:
            return replace(row, image=encode_png(data))
        self._others[row.sample_id] = upright_file(data)[1]
        return row

    def warn(self, to: str) -> None:
        """Say how many pictures a reader of the format may not take, and how many lost their
        coordinates."""
        if self._located:
            warnings.warn(removed_note(len(self._located)), stacklevel=3)
        found = Counter(self._others.values())
        others = {s: n for s, n in found.items() if s not in _COMMON}
        if to not in _LESS_READ:
            others = {s: n for s, n in others.items() if s == ".avif"}
        if others:
            told = ", ".join(f"{number} {suffix[1:]}" for suffix, number in sorted(others.items()))
            warnings.warn(
                f"--to {to}: {told} pictures; {_LESS_READ.get(to, _AVIF)}: export with --reencode "
                "to write them as PNG",
                stacklevel=3,
            )


def is_common(data: bytes) -> bool:
    """Return whether a file is a JPEG, a PNG or a WebP by its first bytes.

    >>> is_common(b"BM......"), is_common(bytes.fromhex("ffd8ffe0"))
    (False, True)
    """
    is_webp = data[:4] == b"RIFF" and data[8:12] == b"WEBP"
    return is_webp or data.startswith((b"\xff\xd8", b"\x89PNG\r\n\x1a\n"))
