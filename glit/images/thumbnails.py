"""Make thumbnails that are small enough for hundreds in one page."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence

from PIL import Image, ImageDraw

from glit.images.decoding import decode

MAX_SIDE = 640
"""Pixels of the longer side; smaller images stay as they are."""
MAX_BYTES = 46 << 10
"""200 of them, in base64, stay under 12.5 MB."""

_QUALITIES = (82, 68, 50)
_SMALLEST = 64


def thumbnail(
    encoded: bytes,
    *,
    max_side: int = MAX_SIDE,
    max_bytes: int = MAX_BYTES,
    boxes: Sequence[Sequence[float]] = (),
) -> bytes:
    """An upright WebP thumbnail with limited side and size.

    Args:
        encoded: the image file.
        max_side: pixels.
        max_bytes: of the answer; a picture of 64 pixels is given whatever its size.
        boxes: to draw, xyxy in pixels of the upright picture; what leaves it is drawn at its edge.

    Raises:
        ImageError: the file is damaged, or too large.
    """
    image = Image.fromarray(decode(encoded))
    for box in boxes:
        _draw(image, box)
    side = min(max_side, max(image.size))
    while True:
        small = image.copy()
        small.thumbnail((side, side), Image.Resampling.LANCZOS)
        for quality in _QUALITIES:
            buffer = io.BytesIO()
            small.save(buffer, "WEBP", quality=quality)
            if buffer.tell() <= max_bytes or side <= _SMALLEST:
                return buffer.getvalue()
        side = side * 3 // 4


def _draw(image: Image.Image, box: Sequence[float]) -> None:
    if all(map(math.isfinite, box)):
        limits = (image.width - 1, image.height - 1) * 2
        x0, y0, x1, y1 = (min(max(e, 0), end) for e, end in zip(box, limits, strict=True))
        corners = (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))
        width = max(2, max(image.size) // 100)
        ImageDraw.Draw(image).rectangle(corners, outline=(255, 0, 0), width=width)


def data_url(webp: bytes) -> str:
    """The data URL of an image."""
    return f"data:image/webp;base64,{base64.b64encode(webp).decode()}"
