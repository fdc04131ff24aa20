"""Decode JPEGs with libjpeg-turbo, and tell sound files from damaged ones.

libjpeg goes on after damage with a warning, and what follows is grey, shifted or of another colour.
A warning here is damage unless a few bytes that belong to no segment explain it: once these are
left out, the file must decode without one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
import simplejpeg
from jaxtyping import UInt8

from glit.images.errors import ImageError, Pixels
from glit.images.zeros import LEAST_ZEROS, check_zeros

Coded = UInt8[np.ndarray, "_height _width _channels"]
_MOST_JUNK = 1 << 16
"""Bytes between two segments before the pixels that may belong to none: metadata of which the
length is stated wrongly."""
_MOST_PADDING = 64
"""Bytes after the pixels."""
_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
"""Markers that begin a frame (ITU T.81, table B.1)."""
_SEGMENTS = frozenset({*range(0xC0, 0xD0), 0xD8, *range(0xDA, 0xFF)})
"""Markers that begin a segment, or another image."""
_PROGRESSIVE = (0xC2, 0xC6, 0xCA, 0xCE)
_KEPT = frozenset({0xE0, 0xEE, 0xDB, 0xC4, 0xCC, 0xDD}) | _FRAMES
"""Segments on which pixels depend; the others hold metadata."""
_START_OF_SCAN = 0xDA
_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
"""Within the pixels of a scan: what ends it."""
_END = b"\xff\xd9"
_PADDING = b"\0\n\r "
_BLOCKS_PER_ZERO = 1.2
"""1.33 with codes of one bit and colours of full size."""


@dataclass(slots=True)
class _Headers:
    """The headers before the pixels of the first scan."""

    segments: list[bytes] = field(default_factory=list)
    """The segments on which pixels depend, as they are."""
    frame: bytes = b""
    """The frame's segment, without marker and length."""
    marker: int = 0
    """The frame's."""
    scan: int = 0
    """Offset of the first scan; 0 if there is none."""
    has_junk: bool = False
    """True if there is too much that belongs to no segment."""

    @property
    def components(self) -> list[int]:
        """Their identifiers."""
        return [self.frame[at] for at in range(6, len(self.frame) - 2, 3)]


def decode_jpeg(data: bytes) -> Pixels | None:
    """RGB pixels of a sound grey or YCbCr file; None leaves another kind to Pillow.

    Raises:
        ImageError: the pixels are damaged.
    """
    return _checked(data, "RGB")


def check_jpeg(data: bytes) -> None:
    """Refuse a damaged file that Pillow decodes: one of four components.

    Raises:
        ImageError: the pixels are damaged.
    """
    _checked(data, "CMYK")


def check_jpeg_strip(data: bytes) -> None:
    """Refuse a damaged strip of a TIFF, with its tables before it.

    Raises:
        ImageError: the pixels are damaged.
    """
    colours = "CMYK" if len(_headers(data).components) == 4 else "RGB"
    complaint, _ = _strictly(data, colours)
    if _is_damage(complaint):
        raise ImageError("corrupt", f"the pixels are damaged: {complaint}")


def _checked(data: bytes, colours: str) -> Coded | None:
    complaint, pixels = _strictly(data, colours)
    headers = _headers(data)
    if pixels is None:
        pixels = _without_junk(data, headers, complaint, colours)
    if pixels is not None:
        _check_scans(data, headers)
        _check_zeros(data, headers, pixels)
    return pixels


def _strictly(data: bytes, colours: str) -> tuple[str, Coded | None]:
    """The decoder's first complaint, or pixels."""
    try:
        return "", simplejpeg.decode_jpeg(data, colorspace=colours, strict=True)
    except ValueError as error:
        return str(error), None


def _is_damage(complaint: str) -> bool:
    """Return whether it is about damage, and not about a kind of file that the decoder does not
    know."""
    return complaint.startswith(("Corrupt JPEG", "Premature end", "Inconsistent progression",
                                 "Invalid SOS"))  # fmt: skip


def _without_junk(data: bytes, headers: _Headers, complaint: str, colours: str) -> Coded | None:
    """Pixels of a file about which the decoder complains, without what belongs to no segment.

    Raises:
        ImageError: it still complains about damage.
    """
    if not headers.scan:
        return None  # Pillow has the last word on files without pixels
    if not headers.has_junk:
        body = data[headers.scan :]
        end = body.rfind(_END)
        body = body if end < 0 else body[:end]
        before = b"\xff\xd8" + b"".join(headers.segments)
        stripped = body[:-_MOST_PADDING] + body[-_MOST_PADDING:].rstrip(_PADDING)
        for each in (body, stripped):
            again, pixels = _strictly(before + each + _END, colours)
            if pixels is not None:
                return pixels
            complaint = again
    if not _is_damage(complaint):
        return None
    raise ImageError("corrupt", f"the pixels are damaged: {complaint}")


def _headers(data: bytes) -> _Headers:
    found, at = _Headers(), 2
    while True:
        start = data.find(b"\xff", at)
        while 0 <= start < len(data) - 1 and data[start + 1] not in _SEGMENTS:
            start = data.find(b"\xff", start + 1)
        if start < 0 or start + 4 > len(data):
            return found
        found.has_junk |= start - at > _MOST_JUNK
        marker, length = data[start + 1], data[start + 2] << 8 | data[start + 3]
        if marker == _START_OF_SCAN:
            found.scan = start
            return found
        if length < 2 or marker == 0xD8:
            return found
        at = start + 2 + length
        if marker in _FRAMES:
            found.marker, found.frame = marker, data[start + 4 : at]
        if marker in _KEPT:
            found.segments.append(data[start:at])


def _check_scans(data: bytes, headers: _Headers) -> None:
    """Refuse a file that ends between two scans: what is missing of its pixels is blurred or grey.

    Raises:
        ImageError: a component, or bits of one, are in no scan.
    """
    components, at = headers.components, headers.scan
    is_progressive = headers.marker in _PROGRESSIVE
    if not components or (not is_progressive and data[at + 4] == len(components)):
        return
    missing = {(each, index): 14 for each in components for index in range(64)}
    while at + 5 <= len(data):
        if data[at + 1] == 0xD9:
            break
        length = data[at + 2] << 8 | data[at + 3]
        if data[at + 1] == _START_OF_SCAN:
            body = data[at + 5 : at + 2 + length]
            first, last, low = (*body[-3:-1], body[-1] & 15) if is_progressive else (0, 63, 0)
            for component in body[: 2 * data[at + 4] : 2]:
                missing |= {(component, index): low for index in range(first, min(last, 63) + 1)}
        following = _MARKER.search(data, at + 2 + length)
        if following is None:
            break
        at = following.start()
    if any(missing.values()):
        raise ImageError("corrupt", "the file ends before its last scan: pixels are incomplete")


def _check_zeros(data: bytes, headers: _Headers, pixels: Coded) -> None:
    """Refuse pixels from a stretch of zero bytes, unless the picture has an even area there.

    Raises:
        ImageError: they are.
    """
    if data.find(bytes(LEAST_ZEROS), headers.scan) < 0:
        return
    end = data.find(_END, headers.scan)
    check_zeros(
        data[headers.scan : end if end > 0 else len(data)],
        None if headers.marker in (0xC0, 0xC1) and not _zeros_are_even(headers) else pixels,
        blocks=_BLOCKS_PER_ZERO,
    )


def _zeros_are_even(headers: _Headers) -> bool:
    """Return whether every Huffman table of the first scan makes zero bits mean a block without
    detail.

    Those that encoders begin with do not: there zero bits of the luma are coefficients.
    """
    for segment in headers.segments:
        at = 4
        while segment[1] == 0xC4 and at + 17 < len(segment):
            number = sum(segment[at + 1 : at + 17])
            if segment[at] >> 4 and segment[at + 17] & 15:
                return False
            at += 17 + number
    return True
