"""Read CBOR (RFC 8949) of strangers: plain values alone, in bounded depth and number.

Tags are passed over, so nothing is made of a value but what Python's JSON would make of it.
"""

from __future__ import annotations

import struct
from typing import Any

_MOST_DEPTH = 32
_MOST_ITEMS = 50_000
_SIMPLE = {20: False, 21: True, 22: None, 23: None}
_FLOATS = {25: ">e", 26: ">f", 27: ">d"}
_BREAK = object()


def read_cbor(data: bytes) -> Any:
    """The first value of some bytes.

    Raises:
        ValueError: it is damaged, too deep, or of too many values.

    >>> read_cbor(bytes.fromhex("a163757365826a6e6f74416c6c6f776564f5"))
    {'use': ['notAllowed', True]}
    """
    try:
        return _Reader(data).value(0)
    except (struct.error, TypeError) as error:  # it ends too early, or a key is no plain value
        raise ValueError(f"CBOR: {error}") from error


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at, self._left = data, 0, _MOST_ITEMS

    def value(self, depth: int) -> Any:
        self._left -= 1
        if depth > _MOST_DEPTH or self._left < 0:
            raise ValueError("CBOR: too deep, or too many values")
        (first,) = struct.unpack(">B", self._take(1))
        major, info = first >> 5, first & 31
        if major == 7:
            return self._simple(info)
        number = self._argument(info)
        if major < 2:
            if number is None:
                raise ValueError("CBOR: a number without an end")
            return -1 - number if major else number
        if major in (2, 3):
            parts = self._parts(depth) if number is None else self._take(number)
            return parts if major == 2 else parts.decode("utf-8", "replace")
        if major == 4:
            return list(self._items(number, depth))
        if major == 5:
            pairs = list(self._items(None if number is None else 2 * number, depth))
            return dict(zip(pairs[::2], pairs[1::2], strict=False))
        return self.value(depth + 1)  # of a tag

    def _take(self, number: int) -> bytes:
        start, self._at = self._at, self._at + number
        if self._at > len(self._data):
            raise ValueError("CBOR: it ends too early")
        return self._data[start : self._at]

    def _argument(self, info: int) -> int | None:
        """A count or a number; None for one of unstated length."""
        if info < 24:
            return info
        if info < 28:
            return int.from_bytes(self._take(1 << info - 24))
        if info == 31:
            return None
        raise ValueError("CBOR: a reserved length")

    def _items(self, number: int | None, depth: int) -> list[Any]:
        found: list[Any] = []
        while number is None or len(found) < number:
            if (value := self.value(depth + 1)) is _BREAK:
                break
            found.append(value)
        return found

    def _parts(self, depth: int) -> bytes:
        parts = self._items(None, depth)
        return b"".join(p if isinstance(p, bytes) else str(p).encode() for p in parts)

    def _simple(self, info: int) -> Any:
        if info in _FLOATS:
            (value,) = struct.unpack(_FLOATS[info], self._take(1 << info - 24))
            return value
        if info == 24:
            self._take(1)
        return _BREAK if info == 31 else _SIMPLE.get(info)
