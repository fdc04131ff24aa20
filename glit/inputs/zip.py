"""List the members of ZIP archives from their central directory, and read them by ranges.

A member is unpacked in memory, up to the size that the directory states. What would unpack to far
more than a picture is refused before, as are members that share bytes: of such are the archives
that fill a disk.
"""

from __future__ import annotations

import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from glit.inputs.archive import ArchiveShard, Member, member_name
from glit.storage.members import DAMAGED, LOCKED, NO_FILE, PACKED

MOST_BYTES = 1 << 30
"""Most bytes that a member unpacks to."""
_MOST_RATIO = 200
_SMALL = 1 << 26
"""Bytes up to which a member may be packed as well as it can be: a white picture."""
_MOST_DIRECTORY = 1 << 26
"""Bytes of a central directory; half a million members have about that."""
_HEADER = 30
_SLACK = 1024
"""Bytes by which the first bytes of a member may be longer when packed: its Huffman codes."""
_ENCRYPTED = 0x1
_UTF8 = 0x800
_UNICODE_NAME = 0x7075


@dataclass(frozen=True, slots=True, kw_only=True)
class ZipMember(Member):
    """A file in a ZIP archive; its offset is that of its header."""

    packed: int = 0
    """Bytes in the archive."""
    deflated: bool = False
    crc: int = 0
    legacy: bool = False
    """True if its name is in a code page that the archive does not tell."""


def scan_zip(file: Any, size: int) -> Iterator[Member]:
    """Yield every member in the order of the directory; if it is damaged, one entry says so.

    Args:
        file: opened.
        size: of the file, in bytes.
    """
    try:
        with zipfile.ZipFile(_Bounded(file)) as archive:  # pyright: ignore[reportArgumentType]
            infos = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError, struct.error, OSError):
        yield Member(name="", offset=0, size=DAMAGED)
        return
    shared = _sharing(infos)
    seen: dict[str, int] = {}
    for at, info in enumerate(infos):
        if not info.filename.endswith("/"):
            yield _member(info, size, seen, shares=at in shared)


class _Bounded:
    """A file from which no more is read at once than a directory has."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell
        self.seekable = file.seekable

    def read(self, size: int = -1) -> bytes:
        if size > _MOST_DIRECTORY:
            raise ValueError(f"a directory of {size} bytes")
        return self._file.read(_MOST_DIRECTORY if size < 0 else size)


def _sharing(infos: list[zipfile.ZipInfo]) -> set[int]:
    """Places in the directory of members that begin within another one."""
    order = sorted(range(len(infos)), key=lambda at: infos[at].header_offset)
    found, end = set(), 0
    for at in order:
        info = infos[at]
        if info.header_offset < end:
            found.add(at)
        end = max(end, info.header_offset + _HEADER + info.compress_size)
    return found


def _member(info: zipfile.ZipInfo, size: int, seen: dict[str, int], *, shares: bool) -> ZipMember:
    given, legacy = _decoded_name(info)
    name, refused = member_name(given, seen)
    kind = stat.S_IFMT(info.external_attr >> 16)
    most = max(_SMALL, _MOST_RATIO * info.compress_size)
    if refused:
        found = refused
    elif kind not in (0, stat.S_IFREG):
        found = NO_FILE
    elif info.flag_bits & _ENCRYPTED or info.compress_type not in (0, zipfile.ZIP_DEFLATED):
        found = LOCKED
    elif shares or not name or not 0 <= info.header_offset <= size - info.compress_size:
        found = DAMAGED
    elif info.file_size > min(MOST_BYTES, most):
        found = PACKED
    else:
        found = info.file_size
    return ZipMember(
        name=name,
        offset=info.header_offset,
        size=found,
        packed=info.compress_size,
        deflated=info.compress_type == zipfile.ZIP_DEFLATED,
        crc=info.CRC,
        legacy=legacy,
    )


def _decoded_name(info: zipfile.ZipInfo) -> tuple[str, bool]:
    """The name of a member, and whether it is in a code page that the archive does not tell.

    A name that is not said to be UTF-8 may be that of Info-ZIP's field (APPNOTE.TXT, 4.6.9), or
    UTF-8 all the same, as macOS writes it.
    """
    if info.flag_bits & _UTF8 or info.orig_filename.isascii():
        return info.filename.replace("\\", "/"), False
    raw = info.orig_filename.encode("cp437")
    for name in (_unicode_field(info.extra, raw), raw):
        try:
            if name:
                return name.decode("utf-8").replace("\\", "/"), False
        except UnicodeDecodeError:
            continue
    # a backslash after another byte above 127 is a part of a character in Shift-JIS, Big5 and GBK
    return re.sub(r"(?<![^\0-\x7f])\\", "/", raw.decode("cp437")), True


def _unicode_field(extra: bytes, raw: bytes) -> bytes:
    """The name in UTF-8 that a member has besides its own, if it is of that; empty for none."""
    at = 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, at)
        content, at = extra[at + 4 : at + 4 + size], at + 4 + size
        if kind == _UNICODE_NAME and len(content) > 5 and content[0] == 1:
            (crc,) = struct.unpack_from("<I", content, 1)
            return content[5:] if crc == zlib.crc32(raw) else b""
    return b""


def zip_shard(fetch: Callable[[int, int], bytes], members: list[Member]) -> ArchiveShard:
    """A ZIP archive with its members.

    Args:
        fetch: bytes of the archive from a start up to an end.
        members: all of them.
    """
    return ArchiveShard(members, lambda member, most: _unpacked(fetch, member, most))


def _unpacked(fetch: Callable[[int, int], bytes], member: Member, most: int) -> bytes:
    assert isinstance(member, ZipMember)
    header = fetch(member.offset, member.offset + _HEADER)
    if len(header) < _HEADER or header[:4] != b"PK\3\4":
        raise OSError(f"{member.name}: the archive has no member there")
    start = member.offset + _HEADER + sum(struct.unpack_from("<HH", header, 26))
    packed = member.packed if most >= member.size else min(member.packed, most + _SLACK)
    data = fetch(start, start + packed)
    if len(data) != packed:
        raise OSError(f"{member.name}: the archive ends within it")
    if member.deflated:
        try:
            unpack = zlib.decompressobj(-zlib.MAX_WBITS)
            data = unpack.decompress(data, min(member.size + 1, max(most, 1)))
        except zlib.error as error:
            raise OSError(f"{member.name}: damaged ({error})") from error
    if most < member.size:
        return data[:most]
    if len(data) != member.size or zlib.crc32(data) != member.crc:
        raise OSError(f"{member.name}: damaged, its bytes are not those that the directory states")
    return data
