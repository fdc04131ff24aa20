"""JPEG XL, through the extra ``jxl``: the size by the header alone, then the pixels."""

from __future__ import annotations

import struct

from PIL import Image

from glit.images.errors import ImageError

_CONTAINER = b"\0\0\0\x0cJXL "
_CODESTREAM = b"\xff\x0a"
_RATIOS = ((1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))
_SIZE_BITS = (9, 13, 18, 30)
_MOST_BOXES = 1000
_BROKEN = (RuntimeError, ValueError, TypeError, OverflowError)


def open_jxl(data: bytes, *, most: int) -> Image.Image | bytes | None:
    """A picture, upright, or the bytes of the JPEG that was packed without loss into one; None
    where the extra is not installed.

    Args:
        data: the file.
        most: pixels of a picture that is decoded.

    Raises:
        ImageError: it is damaged or too large.
    """
    try:
        from pillow_jxl import Decoder  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    try:
        width, height = jxl_size(data)
    except (struct.error, IndexError, ValueError) as error:
        raise ImageError("corrupt", f"the header is damaged: {error}") from error
    if width * height > most:
        raise ImageError("too_large", f"{width}x{height} pixels, at most {most} allowed")
    try:
        is_jpeg, about, pixels, profile, _ = Decoder(num_threads=0)(data)
        if is_jpeg:
            return bytes(pixels)
        image = Image.frombytes(about.mode, (about.width, about.height), bytes(pixels))
    except _BROKEN as error:
        raise ImageError("corrupt", "the image is truncated or damaged") from error
    if profile:
        image.info["icc_profile"] = bytes(profile)
    return image


def jxl_size(data: bytes) -> tuple[int, int]:
    """Width and height of a picture before its orientation (ISO/IEC 18181-1, size header).

    >>> jxl_size(bytes.fromhex("ff0a 5306"))
    (80, 80)

    Raises:
        ValueError: there is no codestream.
    """
    bits = int.from_bytes(_codestream(data)[2:16], "little")

    def take(number: int) -> int:
        nonlocal bits
        value, bits = bits & ((1 << number) - 1), bits >> number
        return value

    small = take(1)

    def side() -> int:
        return 8 * (take(5) + 1) if small else take(_SIZE_BITS[take(2)]) + 1

    height = side()
    ratio = take(3)
    if not ratio:
        return side(), height
    across, down = _RATIOS[ratio - 1]
    return height * across // down, height


def _codestream(data: bytes) -> bytes:
    """The beginning of the picture's own bytes, in the box that has them if there are boxes."""
    if data.startswith(_CODESTREAM):
        return data[:16]
    at = 0
    for _ in range(_MOST_BOXES if data.startswith(_CONTAINER) else 0):
        size, kind = struct.unpack_from(">I4s", data, at)
        start = at + 8
        if size == 1:
            (size,) = struct.unpack_from(">Q", data, start)
            start += 8
        if kind in (b"jxlc", b"jxlp"):
            start += 4 * (kind == b"jxlp")
            return data[start : start + 16]
        if size < start - at:
            break
        at += size
    raise ValueError("no picture in its boxes")
