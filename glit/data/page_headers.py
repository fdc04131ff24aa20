"""The headers of a Parquet column's pages, which say what the pages decode to.

They are structs of Thrift's compact protocol; parquet.thrift of apache/parquet-format has the
numbers of the fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

HEADER_BYTES = (4096, 1 << 18, 1 << 24)
"""Bytes to read for a header, tried in turn until it is whole; Arrow's limit is the last."""
_DEEPEST = 16
_WHOLE = (5, 6, 4)
"""Types of whole numbers in Thrift."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page as its header has it."""

    at: int
    """Offset of its bytes in the file."""
    num_stored: int
    """Bytes in the file."""
    num_bytes: int
    """Bytes once decompressed."""
    num_values: int
    encoding: int
    is_dictionary: bool

    def longest_value(self, file: Any, compression: str) -> int:
        """Bytes of a dictionary's longest value, of its plain bytes."""
        file.seek(self.at)
        data = file.read(self.num_stored)
        if compression != "UNCOMPRESSED":
            try:
                data = pa.Codec(compression.lower()).decompress(data, self.num_bytes, asbytes=True)
            except (pa.ArrowException, OSError, ValueError):
                return self.num_bytes
        at = longest = 0
        for _ in range(self.num_values):
            if at + 4 > len(data):
                break
            length = struct.unpack_from("<I", data, at)[0]
            longest, at = max(longest, length), at + 4 + length
        return min(longest, self.num_bytes)


def pages(file: Any, start: int, end: int, num_values: int) -> Iterator[Page]:
    """The pages of a column from ``start`` up to ``end``, as far as Arrow reads them.

    Raises:
        ValueError: a header is damaged.
    """
    seen = 0
    while start < end and seen < num_values:
        header, length = _header(file, start)
        kind, unpacked, packed = (_whole(header.get(key)) for key in (1, 2, 3))
        data = header.get({0: 5, 2: 7, 3: 8}.get(kind, 0), {})
        if not isinstance(data, dict):
            raise ValueError("the header of a page is damaged")
        count = _whole(data.get(1)) if data else 0
        if kind in (0, 2, 3):
            yield Page(
                at=start + length,
                num_stored=packed,
                num_bytes=unpacked,
                num_values=count,
                encoding=_whole(data.get(4 if kind == 3 else 2)),
                is_dictionary=kind == 2,
            )
        seen += count if kind in (0, 3) else 0
        start += length + packed


def _whole(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError("the header of a page is damaged")
    return value


def _header(file: Any, at: int) -> tuple[dict[int, Any], int]:
    """The header's fields and its length."""
    for most in HEADER_BYTES:
        file.seek(at)
        data = file.read(most)
        try:
            return _struct(data, 0, 0)
        except IndexError:
            if len(data) < most:
                break
    raise ValueError("the header of a page is damaged")


def _struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Fields by number, from ``at``, and where they end.

    Nearly all fields are whole numbers of a byte or two, which are read here: a call for each
    would take most of the time.
    """
    if depth > _DEEPEST:
        raise ValueError("the header of a page is damaged")
    fields: dict[int, Any] = {}
    number = 0
    while True:
        mark = data[at]
        at += 1
        if not mark:
            return fields, at
        if mark >> 4:
            number += mark >> 4
        else:
            number, at = _zigzag(data, at)
        if mark & 15 in _WHOLE:
            value = data[at]
            at += 1
            if value > 127:
                second = data[at]
                if second > 127:
                    value, at = _varint(data, at - 1)
                else:
                    value += (second - 1) << 7
                    at += 1
            fields[number] = (value >> 1) ^ -(value & 1)
        else:
            fields[number], at = _value(data, at, mark & 15, depth)


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2):
        return kind == 1, at
    if kind == 3:
        return data[at], at + 1
    if kind in _WHOLE:
        return _zigzag(data, at)
    if kind == 7:
        return None, at + 8
    if kind == 8:
        length, at = _varint(data, at)
        return None, at + length
    if kind in (9, 10):
        mark, at = data[at], at + 1
        count = mark >> 4
        if count == 15:
            count, at = _varint(data, at)
        for _ in range(count):
            in_list = mark & 15
            if in_list in (1, 2):
                at += 1
            else:
                _, at = _value(data, at, in_list, depth + 1)
        return None, at
    if kind == 12:
        return _struct(data, at, depth + 1)
    raise ValueError("the header of a page is damaged")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("the header of a page is damaged")


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at
