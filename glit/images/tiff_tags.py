"""Values of a few tags of a TIFF's first directory, which is also what an EXIF block is.

Pillow reads every value that a directory names, so a small file that names itself many times costs
gigabytes; here only wanted tags are read, none beyond a limit.
"""

from __future__ import annotations

import struct
from collections.abc import Collection

ORIENTATION, ARTIST, COPYRIGHT = 0x0112, 0x013B, 0x8298
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 7: 1, 13: 4, 16: 8}
"""Bytes of a value, by its type; tags of other types are none of those that are wanted."""
_MOST_ENTRIES = 4096


def first_directory(data: bytes, wanted: Collection[int], *, most: int) -> dict[int, bytes]:
    """The bytes of wanted tags of a TIFF, classic or big, in its own byte order.

    Args:
        data: a TIFF file, or an EXIF block without the word Exif before it.
        wanted: numbers of tags.
        most: longest value in bytes; a longer one is left out.

    Raises:
        ValueError: it is no TIFF, or a directory or a value lies beyond its end.
    """
    order = {b"II": "<", b"MM": ">"}.get(data[:2])
    try:
        if order is None:
            raise ValueError("no TIFF header")
        (version,) = struct.unpack_from(f"{order}H", data, 2)
        if version not in (42, 43):
            raise ValueError(f"version {version} of TIFF")
        start, count, entry = ("I", "H", "HHI4s") if version == 42 else ("Q", "Q", "HHQ8s")
        (at,) = struct.unpack_from(order + start, data, 4 if version == 42 else 8)
        (number,) = struct.unpack_from(order + count, data, at)
        if number > _MOST_ENTRIES:
            raise ValueError(f"{number} tags in a directory")
        at += struct.calcsize(order + count)
        found: dict[int, bytes] = {}
        for _ in range(number):
            tag, kind, length, value = struct.unpack_from(order + entry, data, at)
            at += struct.calcsize(order + entry)
            size = length * _SIZES.get(kind, most + 1)
            if tag not in wanted or tag in found or size > most:
                continue
            if size > len(value):
                (offset,) = struct.unpack(order + start, value)
                value = data[offset : offset + size]
            found[tag] = value[:size]
            if len(found[tag]) < size:
                raise ValueError(f"tag {tag} lies beyond the end")
    except (struct.error, OverflowError) as error:
        raise ValueError("a directory lies beyond the end") from error
    return found
