"""Take out of an encoded picture where it was taken: the coordinates of EXIF and of XMP.

The bytes keep their length and the pixels are not touched: the GPS directory of EXIF is emptied,
values of ``exif:GPS…`` in XMP become blanks. Of a PNG, compressed or hexadecimal blocks with
coordinates become a text that says so. Names of places, as IPTC has them, stay.
"""

from __future__ import annotations

import contextlib
import re
import struct
import zlib
from collections.abc import Iterator

from glit.images.packets import PNG_TEXTS, Packets, find_packets, png_chunks, read_png_text

_GPS_POINTER = 0x8825
_COORDINATES = frozenset({2, 4, 6, 20, 22, 28})
"""Tags of latitude, longitude, altitude, destination and area (EXIF 3.0, table 15)."""
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 129: 1}
"""Bytes of a value, by its type."""
_MOST_ENTRIES = 4096
_IN_PLACE = b"glit\0coordinates were removed"
"""The text of a PNG in place of a block with coordinates."""
_EXIF = re.compile(rb"Exif\0\0(?=II\*\0|MM\0\*)")
_NAMES = rb"[\w-]+:GPS(?:Dest)?(?:Latitude|Longitude|Altitude|AreaInformation)"
_IN_XMP = re.compile(
    rb"(?P<name>"
    + _NAMES
    + rb")(?:(?P<equal>\s*=\s*)(?P<quote>[\"'])(?P<value>[^\"'<>]*)(?P=quote)"
    rb"|(?P<tag>\s*>)(?P<text>[^<]*)(?=</))"
)


def without_location(data: bytes) -> bytes:
    """The picture without coordinates; the same object if it has none.

    Args:
        data: an encoded picture. A damaged block is left as it is.
    """
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return _png_without(data)
    changed = bytearray(data)
    for start in _tiff_starts(data):
        for at, size in _coordinates(data, start):
            changed[at : at + size] = bytes(size)
    if b"GPS" in data:
        changed[:] = _xmp_without(bytes(changed))
    return data if changed == data else bytes(changed)


def removed_note(number: int) -> str:
    """Say that coordinates were left out of so many pictures."""
    return (
        f"{number:,} pictures said where they were taken; that is left out "
        "(pack.keep_location=true keeps it)"
    )


def has_location(data: bytes) -> bool:
    """Return whether an encoded picture says where it was taken."""
    return without_location(data) is not data


def had_location(data: bytes) -> bool:
    """Return whether coordinates were taken out of a picture by :func:`without_location`."""
    if any(_is_emptied(data, start) for start in _tiff_starts(data)) or _IN_PLACE in data:
        return True
    blank = (found["value"] or found["text"] or b"" for found in _IN_XMP.finditer(data))
    return any(value and not value.strip() for value in blank)


def _tiff_starts(data: bytes) -> Iterator[int]:
    """Where EXIF blocks begin, those of further pictures in the file too."""
    if data[:4] in (b"II*\0", b"MM\0*"):
        yield 0
        return
    found = {match.end() for match in _EXIF.finditer(data)}
    if (block := find_packets(data).exif) and (at := data.find(block)) >= 0:
        found.add(at)
    yield from sorted(found)


def _directory(data: bytes, start: int) -> tuple[str, int, int] | None:
    """The byte order, the place and the number of entries of the GPS directory of a block."""
    order = {b"II": "<", b"MM": ">"}.get(data[start : start + 2])
    if order is None:
        return None
    with contextlib.suppress(struct.error):
        (first,) = struct.unpack_from(f"{order}I", data, start + 4)
        (number,) = struct.unpack_from(f"{order}H", data, start + first)
        for entry in range(min(number, _MOST_ENTRIES)):
            at = start + first + 2 + 12 * entry
            tag, _, _, value = struct.unpack_from(f"{order}HHII", data, at)
            if tag == _GPS_POINTER:
                gps = start + value
                (entries,) = struct.unpack_from(f"{order}H", data, gps)
                return order, gps, min(entries, _MOST_ENTRIES)
    return None


def _coordinates(data: bytes, start: int) -> list[tuple[int, int]]:
    """The bytes of a GPS directory with coordinates: itself, and the values beside it."""
    if (found := _directory(data, start)) is None:
        return []
    order, gps, number = found
    parts, tags = [(gps, 2 + 12 * number)], set[int]()
    for entry in range(number):
        try:
            tag, kind, count, value = struct.unpack_from(f"{order}HHII", data, gps + 2 + 12 * entry)
        except struct.error:
            break
        tags.add(tag)
        size = _SIZES.get(kind, 0) * count
        if size > 4 and start + value + size <= len(data):
            parts.append((start + value, size))
    inside = [(at, min(size, len(data) - at)) for at, size in parts]
    return inside if tags & _COORDINATES else []


def _is_emptied(data: bytes, start: int) -> bool:
    found = _directory(data, start)
    return found is not None and found[2] == 0


def _xmp_without(xmp: bytes) -> bytes:
    def blanked(found: re.Match[bytes]) -> bytes:
        if found["quote"]:
            value = b" " * len(found["value"])
            return found["name"] + found["equal"] + found["quote"] + value + found["quote"]
        return found["name"] + found["tag"] + b" " * len(found["text"])

    return _IN_XMP.sub(blanked, xmp)


def _png_without(data: bytes) -> bytes:
    parts, kept = list[bytes](), 0
    for kind, start, end in png_chunks(data):
        if kind != b"eXIf" and kind not in PNG_TEXTS:
            continue
        body = data[start:end]
        if kind == b"eXIf":
            new = without_location(b"Exif\0\0" + body.removeprefix(b"Exif\0\0"))[-len(body) :]
        else:
            new = _xmp_without(body)
        if new != body:
            checksum = struct.pack(">I", zlib.crc32(kind + new))
            parts += [data[kept:start], new, checksum]
            kept = end + 4
        elif kind in PNG_TEXTS and _text_has_location(kind, body):
            text = b"tEXt" + _IN_PLACE
            parts += [data[kept : start - 8], struct.pack(">I", len(_IN_PLACE)), text,
                      struct.pack(">I", zlib.crc32(text))]  # fmt: skip
            kept = end + 4
    return b"".join([*parts, data[kept:]]) if parts else data


def _text_has_location(kind: bytes, body: bytes) -> bool:
    found = Packets()
    with contextlib.suppress(ValueError, zlib.error):
        read_png_text(kind, body, found)
    in_xmp = any((m["value"] or m["text"] or b"").strip() for m in _IN_XMP.finditer(found.xmp))
    return in_xmp or bool(_coordinates(found.exif, 0))
