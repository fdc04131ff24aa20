"""The footers of a dataset's Parquet files: all are read once, the recent ones are kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

import pyarrow.parquet as pq

_MOST = 2048
"""Row groups whose part of a footer is kept: 41 KB each."""


class Footers:
    """Footers of Parquet files by their names; one that is read again has to be as before.

    Args:
        read: reads a file's footer.
    """

    def __init__(self, read: Callable[[str], pq.FileMetaData]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, pq.FileMetaData] = OrderedDict()
        self._number = 0
        """Row groups in the footers that are kept."""
        self._known: dict[str, int] = {}
        """Hash of each footer that was read."""

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def get(self, name: str) -> pq.FileMetaData:
        """Return a file's footer.

        Raises:
            ValueError: the file is another than when its footer was read first.
        """
        with self._lock:
            if (kept := self._kept.get(name)) is not None:
                self._kept.move_to_end(name)
                return kept
        found = self._read(name)
        value = _hash(found)
        with self._lock:
            if self._known.setdefault(name, value) != value:
                raise ValueError("it was changed since it was opened")
            if name not in self._kept:
                self._number += found.num_row_groups
            self._kept[name] = found
            while self._number > _MOST and len(self._kept) > 1:
                self._number -= self._kept.popitem(last=False)[1].num_row_groups
        return found


def _hash(footer: pq.FileMetaData) -> int:
    groups = (footer.row_group(number) for number in range(footer.num_row_groups))
    sizes = tuple((group.num_rows, group.total_byte_size) for group in groups)
    return hash((footer.serialized_size, footer.num_rows, sizes))
