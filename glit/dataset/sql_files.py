"""Give DuckDB access to the files of a dataset at an address, by byte ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from fsspec import AbstractFileSystem

from glit.storage.remote import RangeFile

PROTOCOL = "dataset"


class DatasetFiles(AbstractFileSystem):
    """A read-only file system with only the dataset's files.

    Args:
        sizes: bytes of every file by its path in the dataset; they say what there is.
        fetch: bytes of a file from a start up to an end.
    """

    protocol = PROTOCOL
    cachable = False

    def __init__(
        self, sizes: Mapping[str, int], fetch: Callable[[str, int, int], bytes], **_: Any
    ) -> None:
        super().__init__()
        self._sizes = dict(sizes)
        self._fetch = fetch

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        name = str(self._strip_protocol(path))
        if name not in self._sizes:
            raise FileNotFoundError(path)
        return {"name": name, "size": self._sizes[name], "type": "file", "created": None}

    def modified(self, path: str) -> datetime:
        """A finished dataset's files do not change, so any time will do."""
        return datetime.fromtimestamp(0, tz=UTC)

    def glob(self, path: str, maxdepth: int | None = None, **_: Any) -> list[str]:
        name = str(self._strip_protocol(path))
        return [name] if name in self._sizes else []

    def _open(self, path: str, mode: str = "rb", *_: Any, **__: Any) -> Any:
        name = str(self._strip_protocol(path))
        size = self.info(name)["size"]
        return RangeFile(lambda start, end: self._fetch(name, start, end), size)
