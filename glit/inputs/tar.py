"""Locate the members of WebDataset tars from their headers, and read them by ranges."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from glit.storage.members import BAD_NAME, DAMAGED, ESCAPES, NO_FILE, escaped, is_utf8, stem

_BLOCK = 512
_PIECE = 1 << 18
CAPTION_KEYS = ("caption", "text")
SCHEMA = pa.schema([("name", pa.string()), ("offset", pa.int64()), ("size", pa.int64())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A file in a tar archive."""

    name: str
    """Relative; empty for the place where the archive is damaged."""
    offset: int
    """Offset of its first byte."""
    size: int
    """Bytes; negative for one that is refused (:data:`glit.storage.members.REFUSED`)."""


def scan(file: Any, size: int) -> Iterator[Member]:
    """Yield every member in order; if the archive is damaged, a last entry describes the damage.

    Archives that were put one behind the other into a file (``cat a.tar b.tar``) are all read.

    Of members that have the same name the second is called ``NAME#2``, and so on.

    Args:
        file: opened, of an archive that is not compressed.
        size: of the file, in bytes.
    """
    seen: dict[str, int] = {}
    damage = Member(name="", offset=0, size=DAMAGED)
    at, start = -1, 0
    try:
        while True:
            file.seek(start)
            archive = tarfile.open(fileobj=file, mode="r:")  # noqa: SIM115 - the file is the caller's
            while (info := archive.next()) is not None:
                if info.size < 0 or info.offset_data <= at:  # or tarfile goes round for ever
                    raise ValueError("a member of negative size")
                at = info.offset_data
                archive.members.clear()  # pyright: ignore[reportAttributeAccessIssue] - or all stay
                if not info.isdir():
                    yield (found := _member(info, size, seen))
                    if found.size == DAMAGED:
                        return
            end, start = archive.offset, _after_zeros(file, archive.offset)
            if start < 0:
                return
            if start == end:  # tarfile takes a bad header for the end
                raise ValueError("a bad header")
    except (tarfile.TarError, ValueError, OverflowError, EOFError):
        yield damage


def _after_zeros(file: Any, start: int) -> int:
    """Return the offset of what follows the zero blocks that end an archive, in bytes; -1 for
    nothing. Two archives put into one file have something there."""
    file.seek(start)
    while piece := file.read(_PIECE):
        if kept := piece.lstrip(b"\0"):
            return start + (len(piece) - len(kept)) // _BLOCK * _BLOCK
        start += len(piece)
    return -1


def _member(info: tarfile.TarInfo, size: int, seen: dict[str, int]) -> Member:
    parts = [part for part in info.name.split("/") if part not in ("", ".")]
    escapes = info.name.startswith("/") or ".." in parts
    name = info.name if escapes else "/".join(parts)
    seen[name] = number = seen.get(name, 0) + 1
    if number > 1:
        before = stem(name)
        name = f"{before}#{number}{name[len(before) :]}"
    if not is_utf8(name):
        name, found = escaped(name), BAD_NAME
    elif escapes:
        found = ESCAPES
    elif not info.isreg() or info.issparse():
        found = NO_FILE
    elif info.offset_data + info.size > size:
        found = DAMAGED
    else:
        found = info.size
    return Member(name=name, offset=info.offset_data, size=found)


class TarShard:
    """A tar archive with an index of its members.

    Args:
        fetch: bytes of the archive from a start up to an end.
        members: all of them.
    """

    def __init__(self, fetch: Callable[[int, int], bytes], members: list[Member]) -> None:
        self._fetch = fetch
        self._members = {m.name: (m.offset, m.size) for m in members if m.size >= 0}

    def read(self, name: str) -> bytes:
        """Read a member; for a missing ``KEY.txt``, the caption in ``KEY.json``.

        Raises:
            FileNotFoundError: there is no such member.
            OSError: the archive became shorter.
        """
        if name in self._members:
            return self._bytes(name)
        if name.endswith(".txt") and (beside := f"{stem(name)}.json") in self._members:
            caption = _caption(self._bytes(beside))
            if caption is not None:
                return caption.encode()
        raise FileNotFoundError(name)

    def _bytes(self, name: str) -> bytes:
        offset, size = self._members[name]
        data = self._fetch(offset, offset + size)
        if len(data) != size:
            raise OSError(f"{name}: the archive ends within it")
        return data


def _caption(data: bytes) -> str | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    texts = [found[key] for key in CAPTION_KEYS if key in found] if isinstance(found, dict) else []
    return next((text for text in texts if isinstance(text, str)), None)
