"""Find a picture's metadata in its encoded bytes: EXIF, XMP, IPTC-IIM and C2PA.

The containers are walked by their headers alone, some microseconds a file, and nothing is parsed
here. Files are strangers': a length that is a lie ends the walk, nothing is decompressed beyond a
limit, and no file raises an exception.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from glit.images.decoding import header_info
from glit.images.iim import as_text, iim_of_resources
from glit.images.tiff_tags import first_directory

MOST_PACKET_BYTES = 4 << 20
"""Largest EXIF, XMP or IIM block that is read."""
MOST_C2PA_BYTES = 64 << 20
_MOST_CHUNKS = 100_000
_MOST_INFLATED = 8
"""Blocks of a PNG that are decompressed."""
_PNG_TEXTS = {b"Copyright": "copyright", b"Author": "creator"}
"""Keywords of the PNG specification, by what they state."""
_PNG_PROFILES = {"exif": "exif", "app1": "exif", "iptc": "resources", "xmp": "xmp"}
"""ImageMagick's names of blocks that are kept as hexadecimal text."""
_XMP_TAG, _IIM_TAG, _RESOURCES_TAG, _C2PA_TAG = 700, 33723, 34377, 52545
XMP_MORE = b"http://ns.adobe.com/xmp/extension/\0"
"""Begins a segment of a JPEG with further XMP; 32 letters of its name follow."""
_C2PA_UUID = bytes.fromhex("d8fec3d61b0e483c92975828877ec481")
"""UUID of the box in HEIF and AVIF (C2PA 2.1, appendix A.5)."""


@dataclass(slots=True)
class Packets:
    """The metadata of a picture, each block as its own standard has it; empty where there is none.

    The IIM block may lie in ``resources``, those of Photoshop.
    """

    exif: bytes = b""
    xmp: bytes = b""
    xmp_more: bytes = b""
    """The part of a JPEG's XMP that has no room in ``xmp`` (XMP 1.1.3.1, part 3)."""
    iim: bytes = b""
    resources: bytes = b""
    c2pa: bytes = b""
    texts: dict[str, str] = field(default_factory=dict)
    """Texts of PNG's own keywords: ``copyright``, ``creator``."""
    inflated: int = 0
    """Number of blocks that were decompressed."""
    unreadable: set[str] = field(default_factory=set)
    """Names of blocks that are there and cannot be taken."""

    def keep(self, name: str, block: bytes) -> None:
        """Keep a block, the first of its name; one beyond the limits is unreadable."""
        if len(block) > (MOST_C2PA_BYTES if name == "c2pa" else MOST_PACKET_BYTES):
            self.unreadable.add("iim" if name == "resources" else name)
        elif block and not getattr(self, name):
            setattr(self, name, block)


def find_packets(data: bytes) -> Packets:
    """Find the metadata of an encoded picture; a format that is not known has none."""
    found = Packets()
    try:
        if data.startswith(b"\xff\xd8"):
            _in_jpeg(data, found)
        elif data.startswith(b"\x89PNG\r\n\x1a\n"):
            _in_png(data, found)
        elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            _in_webp(data, found)
        elif data[:2] in (b"II", b"MM"):
            _in_tiff(data, found)
        elif data[4:8] == b"ftyp":
            _in_boxes(data, found)
    except (struct.error, zlib.error, ValueError):
        found.unreadable.add("container")
    if found.resources and not found.iim:
        try:
            found.keep("iim", iim_of_resources(found.resources))
        except ValueError:
            found.unreadable.add("iim")
    return found


def _in_jpeg(data: bytes, found: Packets) -> None:
    at, resources = 2, []
    more: dict[bytes, list[bytes]] = {}
    boxes: dict[bytes, list[bytes]] = {}
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], data[at + 2] << 8 | data[at + 3]
        if marker == 0xFF:  # padding
            at += 1
            continue
        if marker in (0xDA, 0xD9) or length < 2:
            break
        if marker in (0xE1, 0xEB, 0xED):
            body = data[at + 4 : at + 2 + length]
            if body.startswith(b"Exif\0\0"):
                found.keep("exif", body[6:])
            elif body.startswith(b"http://ns.adobe.com/xap/1.0/\0"):
                found.keep("xmp", body[29:])
            elif body.startswith(XMP_MORE):
                more.setdefault(body[35:67], []).append(body[67:])
            elif body.startswith(b"Photoshop 3.0\0"):
                resources.append(body[14:])
            elif marker == 0xEB and body.startswith(b"JP"):
                boxes.setdefault(body[2:4], []).append(body[8:])
        at += 2 + length
    if resources:
        found.keep("resources", b"".join(resources))
    for name, parts in more.items():
        if name in found.xmp:  # of another file's, nothing holds
            _keep_more(parts, found)
    for parts in boxes.values():
        if parts[0][4:8] == b"jumb":  # each further part repeats the header of the box
            found.keep("c2pa", parts[0] + b"".join(part[8:] for part in parts[1:]))


def _keep_more(parts: list[bytes], found: Packets) -> None:
    """Keep the further XMP of a JPEG: parts, each after the length of all and its own place."""
    joined, lengths = b"", set()
    for part in sorted(parts, key=lambda part: part[4:8]):
        length, start = struct.unpack_from(">II", part)
        lengths.add(length)
        if start == len(joined) <= MOST_PACKET_BYTES:
            joined += part[8:]
    if lengths != {len(joined)}:
        found.unreadable.add("xmp")
    else:
        found.keep("xmp_more", joined)


def _in_png(data: bytes, found: Packets) -> None:
    for number, (kind, start, end) in enumerate(png_chunks(data)):
        if number == _MOST_CHUNKS:
            found.unreadable.add("container")
            return
        if kind == b"eXIf":
            found.keep("exif", data[start:end].removeprefix(b"Exif\0\0"))
        elif kind == b"caBX":
            found.keep("c2pa", data[start:end])
        elif kind in PNG_TEXTS and b"\0" in data[start : min(end, start + 80)]:
            read_png_text(kind, data[start:end], found)


PNG_TEXTS = frozenset({b"iTXt", b"tEXt", b"zTXt"})
"""Kinds of chunks of a PNG that hold text."""


def png_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The kind of each chunk of a PNG, and where its body begins and ends."""
    at = 8
    while at + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        yield kind, at + 8, min(at + 8 + length, len(data))
        at += 12 + length


def read_png_text(kind: bytes, body: bytes, found: Packets) -> None:
    """Keep what a text chunk of a PNG holds of metadata."""
    keyword, _, rest = body.partition(b"\0")
    is_profile = keyword.lower().startswith(b"raw profile type ")
    if not (is_profile or keyword in _PNG_TEXTS or keyword == b"XML:com.adobe.xmp"):
        return
    name = as_text(keyword).lower()
    compressed = kind == b"zTXt"
    if kind == b"iTXt":
        compressed = rest[:1] == b"\1"
        rest = rest[2:].split(b"\0", 2)[-1]
    elif compressed:
        rest = rest[1:]
    if compressed:
        found.inflated += 1
        rest = zlib.decompressobj().decompress(rest, MOST_PACKET_BYTES + 1)
        if found.inflated > _MOST_INFLATED or len(rest) > MOST_PACKET_BYTES:
            raise ValueError("many compressed texts, or a long one")
    if keyword in _PNG_TEXTS:
        found.texts.setdefault(_PNG_TEXTS[keyword], as_text(rest[:4096]))
    elif not is_profile:
        found.keep("xmp", rest)
    elif block := _PNG_PROFILES.get(name.removeprefix("raw profile type ")):
        _, _, profile = rest.strip().partition(b"\n")
        _, _, profile = profile.partition(b"\n")  # after its name and its length
        value = bytes.fromhex(profile.decode("ascii", "replace"))
        found.keep(block, value.removeprefix(b"Exif\0\0"))


def _in_webp(data: bytes, found: Packets) -> None:
    names = {b"EXIF": "exif", b"XMP ": "xmp", b"C2PA": "c2pa"}
    at = 12
    for _ in range(_MOST_CHUNKS):
        if at + 8 > len(data):
            return
        kind, length = struct.unpack_from("<4sI", data, at)
        if kind in names:
            body = data[at + 8 : at + 8 + length]
            found.keep(names[kind], body.removeprefix(b"Exif\0\0"))
        at += 8 + length + length % 2
    found.unreadable.add("container")


def _in_tiff(data: bytes, found: Packets) -> None:
    names = {_XMP_TAG: "xmp", _IIM_TAG: "iim", _RESOURCES_TAG: "resources", _C2PA_TAG: "c2pa"}
    for tag, value in first_directory(data, names, most=MOST_PACKET_BYTES).items():
        found.keep(names[tag], value)
    found.exif = data


def _in_boxes(data: bytes, found: Packets) -> None:
    """Metadata of HEIF and AVIF: Pillow's, but for the box of C2PA."""
    header = header_info(data)
    for name in ("exif", "xmp"):
        block = header.get(name)
        if isinstance(block, bytes):
            found.keep(name, block.removeprefix(b"Exif\0\0"))
    at = 0
    for _ in range(_MOST_CHUNKS):
        if at + 8 > len(data):
            return
        length, kind = struct.unpack_from(">I4s", data, at)
        start = at + 8
        if length == 1:
            (length,) = struct.unpack_from(">Q", data, start)
            start += 8
        end = at + length if length else len(data)
        if end < start:
            return
        if kind == b"uuid" and data[start : start + 16] == _C2PA_UUID:
            body = data[start + 20 : end]  # after version and flags
            purpose, _, body = body.partition(b"\0")
            if purpose == b"manifest":
                found.keep("c2pa", body[8:])  # after the offset of a Merkle box
        at = end
