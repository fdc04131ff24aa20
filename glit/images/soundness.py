"""Find damage that Pillow does not report: in PNG, TIFF, WebP and AVIF.

PNG has checksums. libtiff complains to the terminal, and Pillow goes on: its complaints are caught
here. WebP and AVIF have nothing of the kind: of them, stretches of zero bytes are all that can be
known.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import zlib
from collections.abc import Callable, Iterator

from PIL import Image

from glit.images.errors import ImageError, Pixels
from glit.images.jpeg import check_jpeg_strip
from glit.images.zeros import check_zeros

_BLOCKS_PER_ZERO = 4
"""Least even blocks for a zero byte of a lossy WebP; nine and more were measured."""
_TIFF_TABLES = 347
_SUBFILE_TYPE, _SUB_IFDS, _DNG_VERSION = 254, 330, 50706
_TIFF_OFFSETS = ((273, 279), (324, 325))
"""Tags: where strips or tiles begin, and their bytes."""


def is_raw(image: Image.Image, data: bytes) -> bool:
    """Return whether a TIFF is the RAW file of a camera, of which Pillow would decode a thumbnail:
    DNG, Canon's CR2, or a reduced picture before others, as Nikon's and Sony's."""
    tags = getattr(image, "tag_v2", {})
    is_reduced = tags.get(_SUBFILE_TYPE, 0) & 1 and _SUB_IFDS in tags
    return _DNG_VERSION in tags or data[8:10] == b"CR" or bool(is_reduced)


def check_before(data: bytes, image: Image.Image) -> None:
    """Refuse a file of which damage is known before its pixels are decoded.

    Raises:
        ImageError: it is damaged.
    """
    if image.format == "PNG":
        _check_png(data)
    elif image.format == "TIFF" and (check := _STRIPS.get(image.info.get("compression", ""))):
        for strip in _tiff_strips(data, image):
            check(strip, image)


def check_after(data: bytes, image: Image.Image, pixels: Pixels) -> None:
    """Refuse pixels that a decoder made of bytes that were lost.

    Raises:
        ImageError: it did.
    """
    if image.format == "WEBP":
        for kind, body in _webp_chunks(data):
            check_zeros(body, pixels if kind == b"VP8 " else None, blocks=_BLOCKS_PER_ZERO)
    elif image.format == "AVIF" and b"Exif" not in data and b"application/rdf" not in data:
        check_zeros(data[data.find(b"mdat") + 4 :], None)


def _check_png(data: bytes) -> None:
    """Pillow does not look at the checksums of pixel data; a damaged file would give noise."""
    position = 8
    while position + 12 <= len(data):
        length = int.from_bytes(data[position : position + 4], "big")
        end = position + 12 + length
        kind = data[position + 4 : position + 8]
        if end > len(data):
            break
        if zlib.crc32(data[position + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big"):
            raise ImageError("corrupt", f"the checksum of a {kind!r} chunk is wrong")
        if kind == b"IEND":
            return
        position = end
    raise ImageError("corrupt", "the file ends before its last chunk")


def _webp_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Kind and content of the chunks with pixels; those of frames are found in theirs."""
    at = 12
    while at + 8 <= len(data):
        kind, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        if kind in (b"VP8 ", b"VP8L", b"ALPH"):
            yield kind, data[at + 8 : at + 8 + size]
        if kind == b"ANMF":
            at += 24
            continue
        at += 8 + size + size % 2


def _tiff_strips(data: bytes, image: Image.Image) -> Iterator[bytes]:
    tags = getattr(image, "tag_v2", {})
    for offsets, sizes in _TIFF_OFFSETS:
        for offset, size in zip(tags.get(offsets, ()), tags.get(sizes, ()), strict=False):
            yield data[offset : offset + size]


def _check_jpeg_strip(strip: bytes, image: Image.Image) -> None:
    tables = bytes(getattr(image, "tag_v2", {}).get(_TIFF_TABLES, b""))[:-2] or b"\xff\xd8"
    check_jpeg_strip(tables + strip[2:])


def _check_deflated_strip(strip: bytes, image: Image.Image) -> None:
    """libtiff stops when it has enough pixels, before the checksum that follows them."""
    inflated, left = zlib.decompressobj(), strip
    try:
        most = 8 * image.width * image.height * len(image.getbands()) + _MOST_MORE
        while left and most > 0 and not inflated.eof:
            most -= len(inflated.decompress(left, _PIECE))
            left = inflated.unconsumed_tail
    except zlib.error as error:
        raise ImageError("corrupt", f"the pixels are damaged: {error}") from error


def _check_packed_strip(strip: bytes, image: Image.Image) -> None:
    """Refuse runs that end elsewhere than the rows of the strip do."""
    at, done = 0, 0
    while at < len(strip):
        number = strip[at]
        if number < 128:
            at, done = at + 2 + number, done + number + 1
        else:
            at, done = at + (2 if number > 128 else 1), done + (257 - number if number > 128 else 0)
    tags = getattr(image, "tag_v2", {})
    bits = sum(tags.get(258, (1,))) if tags.get(284, 1) == 1 else tags.get(258, (1,))[0]
    width = tags.get(322, image.width)
    row = -(-width * bits // 8)
    if at != len(strip) or done % row:
        raise ImageError("corrupt", "the pixels are damaged: a run ends within a row")


_PIECE, _MOST_MORE = 1 << 20, 1 << 16
_STRIPS: dict[str, Callable[[bytes, Image.Image], None]] = {
    "jpeg": _check_jpeg_strip,
    "tiff_adobe_deflate": _check_deflated_strip,
    "tiff_deflate": _check_deflated_strip,
    "packbits": _check_packed_strip,
}
"""Checks of strips, by Pillow's name of their compression."""


class _Heard(threading.local):
    """The complaints of libtiff in this thread; None where nobody listens."""

    complaints: list[str] | None = None


_HEARD = _Heard()
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)


@_HANDLER
def _hear(module: bytes | None, text: bytes | None, _values: int | None) -> None:
    if _HEARD.complaints is not None:
        words = (b"" if module is None else module + b": ") + (text or b"")
        _HEARD.complaints.append(words.decode(errors="replace"))


def _handlers() -> ctypes.CDLL | None:
    """The library that Pillow decodes TIFFs with; None where it is not to be had."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(Image.core.__file__)
        library.TIFFSetErrorHandler.argtypes = [ctypes.c_void_p]
        library.TIFFSetErrorHandler.restype = ctypes.c_void_p
        return library
    return None


_LIBTIFF = _handlers()


@contextlib.contextmanager
def libtiff_is_heard() -> Iterator[None]:
    """libtiff's complaints go to this module, not to the terminal; then where they went before."""
    if _LIBTIFF is None:
        yield
        return
    before = _LIBTIFF.TIFFSetErrorHandler(ctypes.cast(_hear, ctypes.c_void_p))
    try:
        yield
    finally:
        _LIBTIFF.TIFFSetErrorHandler(before)


@contextlib.contextmanager
def complaints_of_libtiff() -> Iterator[list[str]]:
    """The list to which errors are added that libtiff finds in this thread."""
    _HEARD.complaints = found = []
    try:
        yield found
    finally:
        _HEARD.complaints = None
