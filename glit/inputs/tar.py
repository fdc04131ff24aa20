"""Locate the members of WebDataset tars from their headers, and read them by ranges."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from glit.inputs.archive import ArchiveShard, Member, member_name
from glit.storage.members import DAMAGED, NO_FILE

_BLOCK = 512
_PIECE = 1 << 18
SCHEMA = pa.schema([("name", pa.string()), ("offset", pa.int64()), ("size", pa.int64())])


def scan(file: Any, size: int) -> Iterator[Member]:
    """Yield every member in order; if the archive is damaged, a last entry describes the damage.

    Archives that were put one behind the other into a file (``cat a.tar b.tar``) are all read.

    Of members that have the same name the second is called ``NAME#2``, and so on. A hard link to a
    member before it has that one's bytes.

    Args:
        file: opened, of an archive that is not compressed.
        size: of the file, in bytes.
    """
    seen: dict[str, int] = {}
    known: dict[str, Member] = {}
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
                    found = known[_plain(info.name)] = _member(info, size, seen, known)
                    yield found
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


def _member(
    info: tarfile.TarInfo, size: int, seen: dict[str, int], known: dict[str, Member]
) -> Member:
    name, refused = member_name(info.name, seen)
    offset = info.offset_data
    if refused:
        found = refused
    elif info.islnk():
        offset, found = _linked(info, known)
    elif not info.isreg() or info.issparse():
        found = NO_FILE
    elif info.offset_data + info.size > size:
        found = DAMAGED
    else:
        found = info.size
    return Member(name=name, offset=offset, size=found)


def _linked(info: tarfile.TarInfo, known: dict[str, Member]) -> tuple[int, int]:
    """The place of a hard link's file, which is in the archive before it."""
    target = known.get(_plain(info.linkname))
    if target is None or target.size < 0:
        return info.offset_data, NO_FILE
    return target.offset, target.size


def _plain(name: str) -> str:
    """A name as it is unpacked to, so that ``./a`` is ``a``."""
    return "/".join(part for part in name.split("/") if part not in ("", "."))


def tar_shard(fetch: Callable[[int, int], bytes], members: list[Member]) -> ArchiveShard:
    """A tar archive with an index of its members.

    Args:
        fetch: bytes of the archive from a start up to an end.
        members: all of them.
    """

    def read(member: Member, most: int) -> bytes:
        size = min(member.size, most)
        data = fetch(member.offset, member.offset + size)
        if len(data) != size:
            raise OSError(f"{member.name}: the archive ends within it")
        return data

    return ArchiveShard(members, read)
