"""Keep the notices of copyright, licence and provenance of a picture that is encoded again.

Kept are copyright and artist of EXIF, the XMP packet, and IPTC-IIM. A manifest of C2PA is not: it
is signed over bytes that are no longer there. A picture without notices is encoded without any.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from glit.images.iim import BYLINE, COPYRIGHT, read_iim, resources_of_iim
from glit.images.packets import XMP_MORE, find_packets
from glit.images.tiff_tags import ARTIST, first_directory
from glit.images.tiff_tags import COPYRIGHT as COPYRIGHT_TAG

_MOST_TAG_BYTES = 16 << 10
_MOST_SEGMENT_BYTES = 0xFFFF - 2
_FURTHER_BYTES = 65_400
_TURNED = re.compile(rb"(tiff:Orientation\s*(?:=\s*[\"']|>)\s*)[2-8]")
_PADDING = re.compile(rb"\s+(?=<\?xpacket end)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Notices:
    """The notices of a picture; empty where it has none."""

    exif: bytes = b""
    """An EXIF block with copyright and artist alone, so that the picture counts as upright."""
    xmp: bytes = b""
    """Its packet, in which the picture counts as upright."""
    xmp_more: bytes = b""
    """The part of it that JPEG has in segments of its own; a PNG has none."""
    iim: bytes = b""


def find_notices(data: bytes) -> Notices:
    """Return the notices that an encoded picture has.

    A PNG has no place for IIM, and readers differ on its own texts, so copyright and artist of
    these stand in EXIF where that has none.
    """
    packets, tags, texts = find_packets(data), {}, dict[int, str]()
    with contextlib.suppress(ValueError):  # a damaged block has no notice
        tags = first_directory(packets.exif, {ARTIST, COPYRIGHT_TAG}, most=_MOST_TAG_BYTES)
    with contextlib.suppress(ValueError):
        of_iim = read_iim(packets.iim)
        texts = {ARTIST: "; ".join(of_iim.get(BYLINE, ()))}
        texts[COPYRIGHT_TAG] = "; ".join(of_iim.get(COPYRIGHT, ()))
    own = {ARTIST: packets.texts.get("creator"), COPYRIGHT_TAG: packets.texts.get("copyright")}
    xmp, exif = packets.xmp, Image.Exif()
    if xmp[:2] in (b"\xff\xfe", b"\xfe\xff"):  # JPEG and PNG want UTF-8
        xmp = xmp.decode("utf-16", "replace").encode()
    for tag in (ARTIST, COPYRIGHT_TAG):
        said = tags.get(tag, b"").strip(b"\0 ") or (texts.get(tag) or own[tag] or "").encode()
        if said:
            exif[tag] = said[:_MOST_TAG_BYTES]
    return Notices(
        exif=exif.tobytes().removeprefix(b"Exif\0\0") if len(exif) else b"",
        xmp=_TURNED.sub(rb"\g<1>1", xmp),
        xmp_more=packets.xmp_more,
        iim=packets.iim,
    )


def save_jpeg(image: Image.Image, notices: Notices, *, quality: int) -> bytes:
    """Encode a picture as JPEG with notices. A packet of XMP that is too long for a JPEG, 64 KB
    without its padding, is left out."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    data, xmp = buffer.getvalue(), notices.xmp
    if len(xmp) > _MOST_SEGMENT_BYTES - 29:
        xmp = _PADDING.sub(b"\n", xmp)
    segments = [
        _segment(0xE1, b"Exif\0\0", notices.exif),
        _segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0", xmp),
        *_further_segments(notices.xmp_more),
        _segment(0xED, b"Photoshop 3.0\0", notices.iim and resources_of_iim(notices.iim)),
    ]
    at = 4 + int.from_bytes(data[4:6])  # JFIF's segment comes first
    return data[:at] + b"".join(segments) + data[at:]


def _further_segments(xmp: bytes) -> Iterator[bytes]:
    """The segments of further XMP, which the packet names by its MD5."""
    name = hashlib.md5(xmp, usedforsecurity=False).hexdigest().upper().encode()
    for start in range(0, len(xmp), _FURTHER_BYTES):
        place = len(xmp).to_bytes(4) + start.to_bytes(4)
        yield _segment(0xE1, XMP_MORE + name + place, xmp[start : start + _FURTHER_BYTES])


def _segment(marker: int, head: bytes, body: bytes) -> bytes:
    """A segment of a JPEG; empty if it has no body, or one that is too long."""
    if not body or len(head) + len(body) > _MOST_SEGMENT_BYTES:
        return b""
    length = 2 + len(head) + len(body)
    return bytes([0xFF, marker]) + length.to_bytes(2) + head + body


def save_png(image: Image.Image, notices: Notices) -> bytes:
    """Encode a picture as PNG with notices."""
    buffer, said = io.BytesIO(), PngInfo()
    if notices.xmp:
        said.add_itxt("XML:com.adobe.xmp", notices.xmp.decode("utf-8", "replace"))
    exif = {"exif": notices.exif} if notices.exif else {}
    image.save(buffer, "PNG", pnginfo=said, **exif)
    return buffer.getvalue()
