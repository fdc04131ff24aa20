"""A JSON object of long lists, written value by value so that memory stays flat."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO


class JsonFile:
    """Write ``{"a": [...], "b": [...]}``; each list grows in its own temporary file.

    ``first`` holds values that stand before the lists. Used with ``with``; the file is there
    when the block ends without an error.
    """

    def __init__(self, path: Path, *lists: str, first: Mapping[str, Any] | None = None) -> None:
        self._first = first or {}
        self._path = path
        self._names = lists
        self._empty = dict.fromkeys(lists, True)
        self._open = ExitStack()
        self._files: dict[str, BinaryIO] = {}

    def __enter__(self) -> JsonFile:
        for name in self._names:
            part = self._part(name).open("w+b")
            self._files[name] = self._open.enter_context(part)
        return self

    def add(self, name: str, value: Any) -> None:
        """Append a value to a list."""
        comma = b"" if self._empty[name] else b",\n"
        self._empty[name] = False
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        self._files[name].write(comma + text.encode())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._open:
            if kind is None:
                self._join()
        for name in self._names:
            self._part(name).unlink()

    def _join(self) -> None:
        with self._path.open("wb") as out:
            out.write(b"{")
            for name, value in self._first.items():
                out.write(f'"{name}": {json.dumps(value, ensure_ascii=False)},\n'.encode())
            for position, name in enumerate(self._names):
                out.write(b",\n" if position else b"")
                out.write(f'"{name}": [\n'.encode())
                self._files[name].seek(0)
                shutil.copyfileobj(self._files[name], out)
                out.write(b"\n]")
            out.write(b"}\n")

    def _part(self, name: str) -> Path:
        return self._path.with_name(f"{self._path.name}.{name}.part")
