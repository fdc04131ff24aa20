"""Encode pictures again: smaller, upright, or in another format, with the notices they carry."""

from __future__ import annotations

from PIL import Image

from glit.images.decoding import decode, turned_format
from glit.images.errors import Pixels
from glit.images.notices import find_notices, save_jpeg, save_png

_QUALITY = 95
_SUFFIXES = {"JPEG": ".jpg", "MPO": ".jpg", "TIFF": ".tif"}
"""By Pillow's name of a format, where it is not the suffix itself."""


def upright_file(data: bytes) -> tuple[bytes, str]:
    """An image file without EXIF rotation, and its suffix.

    Readers differ in whether they obey EXIF orientation. A file that it turns is encoded again,
    upright, with its notices: JPEG as JPEG (quality 95), others as PNG; all other files stay as
    they are.

    Raises:
        ImageError: as :func:`glit.images.decode`.
    """
    name, is_turned = turned_format(data)
    if not is_turned:
        return data, _SUFFIXES.get(name, f".{name.lower()}")
    if name in ("JPEG", "MPO"):
        upright = Image.fromarray(decode(data))
        return save_jpeg(upright, find_notices(data), quality=_QUALITY), ".jpg"
    return encode_png(data), ".png"


def encode_png(data: bytes, pixels: Pixels | None = None) -> bytes:
    """A picture as PNG, with its notices.

    Args:
        data: the encoded picture.
        pixels: those to encode, as a part of it; None takes all, as models are given them.

    Raises:
        ImageError: as :func:`glit.images.decode`.
    """
    return save_png(Image.fromarray(decode(data) if pixels is None else pixels), find_notices(data))


def encode_smaller(
    pixels: Pixels, *, max_side: int, original: bytes = b""
) -> tuple[bytes, int, int]:
    """JPEG (quality 95) whose longer side is ``max_side``; also its width and height.

    Args:
        pixels: of the picture.
        max_side: pixels.
        original: the encoded picture, whose notices are kept.
    """
    image = Image.fromarray(pixels)
    scale = max_side / max(image.size)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    smaller = image.resize(size, Image.Resampling.LANCZOS)
    return save_jpeg(smaller, find_notices(original), quality=_QUALITY), *size
