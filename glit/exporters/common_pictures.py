"""Pictures of formats that readers of an export do not decode: encoded again, or counted."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from glit.dataset.reader import Dataset
from glit.dataset.row import Row
from glit.images import encode_png, upright_file

_COMMON = (".jpg", ".jpeg", ".png", ".webp")
"""Suffixes that open_clip takes from a tar, and that every reader decodes."""
_LESS_READ = {"webdataset": "open_clip takes only jpg, jpeg, png and webp from a tar"}
_AVIF = "Pillow before 11.3 and many builds of OpenCV do not read avif"


class CommonPictures(Dataset):
    """The same dataset, to iterate over rows; pictures that are not JPEG, PNG or WebP are counted,
    and become PNG of the pixels that models are given, if that is wanted."""

    def __init__(self, whole: Dataset, *, reencode: bool) -> None:
        self.__dict__.update(whole.__dict__)
        self._whole, self._reencode = whole, reencode
        self._others: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Row]:
        return map(self._common, self._whole)

    def __getitem__(self, number: int) -> Row:
        return self._common(self._whole[number], counted=False)

    def _common(self, row: Row, *, counted: bool = True) -> Row:
        data = row.image
        if data is None or is_common(data):
            return row
        if not self._reencode:
            self._others[upright_file(data)[1]] += counted
            return row
        return replace(row, image=encode_png(data))

    def warn(self, to: str) -> None:
        """Say how many pictures a reader of the format may not take."""
        others = {s: n for s, n in self._others.items() if s not in _COMMON}
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
