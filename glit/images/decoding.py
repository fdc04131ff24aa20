"""Decode image files to upright RGB pixels.

EXIF orientation is applied; CMYK, palette, grey, 16-bit and alpha (over white) are converted;
of animations the first frame counts. Baseline JPEGs go through libjpeg-turbo directly, whose
pixels equal Pillow's; everything else through Pillow, which is allowed the formats of
``IMAGE_SUFFIXES`` alone: some of its others start programs or read other files.
"""

from __future__ import annotations

import contextlib
import io
import os
import struct
import sys
import threading
import warnings
import zlib
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError

from glit.errors import UserError
from glit.images.colour import mend_transparency, to_srgb, with_profile
from glit.images.errors import ImageError, Pixels
from glit.images.formats import HEAD_BYTES, other_format
from glit.images.jpeg import check_jpeg, decode_jpeg
from glit.images.jxl import open_jxl
from glit.images.soundness import (
    check_after,
    check_before,
    complaints_of_libtiff,
    is_raw,
    libtiff_is_heard,
)
from glit.images.tiff_tags import ORIENTATION

MAX_PIXELS = 150_000_000
"""Default limit of an image's pixels: 450 MB decoded."""
NO_LIMIT = sys.maxsize
"""The value of ``max_pixels`` for images whose size was checked before."""
_LIMIT_VARIABLE = "GLIT_MAX_PIXELS"
_FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF", "AVIF")
"""Pillow's names of the formats that are decoded."""
_DECODER_ERRORS = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    EOFError,
    IndexError,
    KeyError,
    OverflowError,
    RuntimeError,
    struct.error,
    zlib.error,
)
open_with_pillow = Image.open  # ultralytics replaces it by one that installs packages


class _PillowSettings:
    """Pillow as decoding wants it, for as long as any thread decodes; then as the caller had it.

    Its limit of pixels is off, because ``max_pixels`` is checked on the header instead, and so are
    its remarks about odd EXIF blocks. Both are settings of the whole process, so the first thread
    to come in changes them and the last one to leave puts them back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._undo = contextlib.ExitStack()

    @contextlib.contextmanager
    def as_wanted_here(self) -> Iterator[None]:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._undo.callback(setattr, Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)
                self._undo.enter_context(warnings.catch_warnings())
                self._undo.enter_context(libtiff_is_heard())
                Image.MAX_IMAGE_PIXELS = None
                # of Pillow and its plugins alone: other threads warn of other things meanwhile
                warnings.filterwarnings("ignore", module=r"(PIL|pillow_\w+)(\.|$)")
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    self._undo.close()


_PILLOW = _PillowSettings()


def pixel_limit() -> int:
    """The most pixels an image may have where nobody says otherwise: ``MAX_PIXELS``, or what the
    environment variable GLIT_MAX_PIXELS says.

    Raises:
        UserError: the variable is no positive number.
    """
    said = os.environ.get(_LIMIT_VARIABLE, "")
    if not said:
        return MAX_PIXELS
    if not said.isdecimal() or not int(said):
        raise UserError(f"{_LIMIT_VARIABLE}={said}: want a positive number of pixels")
    return int(said)


def decode(data: bytes, *, max_pixels: int | None = None) -> Pixels:
    """Decode to RGB pixels, uint8 [height, width, 3], EXIF orientation applied; writable.

    Args:
        data: the encoded file.
        max_pixels: refuse larger images on their header alone, before any pixel is decoded;
            None takes :func:`pixel_limit`.

    Raises:
        ImageError: with reason ``empty_file``, ``not_an_image``, ``unsupported_format``,
            ``corrupt``, ``too_large`` or ``unsupported_mode``.
    """
    if not data:
        raise ImageError("empty_file", "the file has no bytes")
    limit = pixel_limit() if max_pixels is None else max_pixels
    size = _size_of_simple_jpeg(data)
    if size is not None:
        _check_size(*size, limit)
        pixels = decode_jpeg(data)
        if pixels is not None:
            return pixels
    with _PILLOW.as_wanted_here():
        image = _open(data, most=limit)
        _check_size(*image.size, limit)
        # Pillow turns a TIFF itself as it loads it
        orientation = 1 if image.format in ("TIFF", "HEIF") else _orientation(image)
        pixels = _decode_jpeg(data, image) if image.format in ("JPEG", "MPO") else None
        if pixels is None:
            pixels = _decode_pillow(data, image)
    return np.ascontiguousarray(_upright(pixels, orientation))


def _decode_jpeg(data: bytes, image: Image.Image) -> Pixels | None:
    """Pixels in sRGB; None leaves a sound file to Pillow."""
    if image.mode not in ("RGB", "L"):
        check_jpeg(data)
        return None
    pixels = decode_jpeg(data)
    if pixels is not None:
        with_profile(pixels, image)
    return pixels


def _check_size(width: int, height: int, most: int) -> None:
    if width * height > most:
        raise ImageError("too_large", f"{width}x{height} pixels, at most {most} allowed")


def _size_of_simple_jpeg(data: bytes) -> tuple[int, int] | None:
    """Width and height of a JPEG of which nothing has to be known but its pixels: grey or YCbCr, 8
    bits, without EXIF, XMP, further images or Adobe's remark. None leaves it to Pillow.

    Pillow takes 0.1 ms for a header, all of it under the interpreter's lock; this 0.01 ms.
    """
    size, at = None, 2
    if data[:2] != b"\xff\xd8":
        return None
    while at + 10 <= len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], data[at + 2] << 8 | data[at + 3]
        if marker == 0xDA:  # the pixels begin
            return size
        if marker in (0xC0, 0xC1, 0xC2):  # ITU T.81, B.2.2: bits, height, width, components
            bits, height, width, components = struct.unpack_from(">BHHB", data, at + 4)
            if bits != 8 or components not in (1, 3) or not (height and width):
                return None
            size = (width, height)
        elif marker not in _HARMLESS_MARKERS or length < 2:
            return None
        at += 2 + length
    return None


_HARMLESS_MARKERS = {0xE0, 0xDB, 0xC4, 0xDD, 0xFE}
"""JFIF, quantisation, Huffman codes, restart interval, comment."""


def _open(data: bytes, stream: IO[bytes] | None = None, *, most: int | None = None) -> Image.Image:
    """The file of these bytes, or that of a stream which begins with them.

    Args:
        data: the file, or its first bytes.
        stream: the file, if ``data`` is not all of it.
        most: pixels of a picture whose header cannot be read without its pixels; None takes
            :func:`pixel_limit`.
    """
    try:
        image = open_with_pillow(stream or io.BytesIO(data), formats=_FORMATS)
        if image.format == "TIFF" and is_raw(image, data):
            raise _unsupported("RAW")
        mend_transparency(image)  # before the EXIF block is asked for, which loads a PNG
        return image
    except UnidentifiedImageError as error:
        name = other_format(data[:HEAD_BYTES])
        if stream is not None:
            stream.seek(0)
        if name in ("HEIF", "JPEG XL"):
            whole = stream.read() if stream else data
            opened = _open_heif(whole) if name == "HEIF" else _open_jxl(whole, most)
            if opened is not None:
                return opened
        if name:
            raise _unsupported(name) from error
        raise ImageError("not_an_image", "no decoder recognises the bytes") from error
    except _DECODER_ERRORS as error:
        raise ImageError("corrupt", f"the header is damaged: {error}") from error


def _unsupported(name: str) -> ImageError:
    how = "convert it to JPEG or PNG"
    if extra := {"HEIF": "heif", "JPEG XL": "jxl"}.get(name):
        how = f"install glit's extra {extra}, or {how}"  # in a dataset: no command of this machine
    return ImageError("unsupported_format", f"{name}, which glit does not decode; {how}")


def _open_jxl(data: bytes, most: int | None) -> Image.Image | None:
    """A picture that the extra ``jxl`` decodes; None where it is not installed."""
    found = open_jxl(data, most=pixel_limit() if most is None else most)
    if found is not None:
        found = _open(found) if isinstance(found, bytes) else found
        found.format = "JXL"
    return found


def _open_heif(data: bytes) -> ImageFile.ImageFile | None:
    """A picture that the extra ``heif`` decodes, turned already; None where it is not installed."""
    try:
        from pillow_heif import HeifImageFile  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    try:
        return HeifImageFile(io.BytesIO(data))
    except _DECODER_ERRORS as error:
        raise ImageError("corrupt", f"the header is damaged: {error}") from error


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except _DECODER_ERRORS:
        return 1  # a damaged EXIF block leaves good pixels


def _decode_pillow(data: bytes, image: Image.Image) -> Pixels:
    try:
        check_before(data, image)
        with complaints_of_libtiff() as complaints:
            image.load()
        if complaints:
            raise ImageError("corrupt", f"the image is damaged: {complaints[0]}")
        pixels = to_srgb(image)
    except _DECODER_ERRORS as error:
        raise ImageError("corrupt", f"the image is truncated or damaged: {error}") from error
    check_after(data, image, pixels)
    return pixels


def _upright(pixels: Pixels, orientation: int) -> Pixels:
    """Undo EXIF orientations 2 to 8 (CIPA DC-008, table of tag 0x0112)."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return pixels


def picture_frame(file: str | os.PathLike[str] | bytes) -> tuple[int, int, int]:
    """Width and height of an upright image, and its EXIF orientation, from the header alone.

    Args:
        file: its path or its bytes.

    Raises:
        ImageError: it is damaged or no image.
        OSError: it cannot be read.
    """
    with (
        io.BytesIO(file) if isinstance(file, bytes) else open(file, "rb") as stream,
        _PILLOW.as_wanted_here(),
    ):
        head = stream.read(HEAD_BYTES)
        stream.seek(0)
        image = _open(head, stream)
        orientation = _orientation(image)
        width, height = image.size
        # Pillow states a TIFF's size as it is once turned
        if orientation in (5, 6, 7, 8) and image.format != "TIFF":
            width, height = height, width
        return width, height, orientation


def header_info(data: bytes) -> dict[Any, Any]:
    """Return what Pillow keeps of a file's header, such as ``exif`` and ``xmp``; empty if the file
    cannot be opened."""
    with _PILLOW.as_wanted_here():
        try:
            return dict(_open(data).info)
        except ImageError:
            return {}


def turned_format(data: bytes) -> tuple[str, bool]:
    """Return Pillow's name of a file's format, and whether EXIF orientation turns the picture.

    Raises:
        ImageError: as :func:`decode`.
    """
    with _PILLOW.as_wanted_here():
        image = _open(data)
        return image.format or "", _orientation(image) in range(2, 9)
