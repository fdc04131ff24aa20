"""Find pixels that come from a stretch of zero bytes: a sector that was lost, a download that was
broken off.

Compressed data has such stretches in large even areas alone. Decoders take them for pixels.
"""

from __future__ import annotations

import re

import numpy as np
from jaxtyping import UInt8

from glit.images.errors import ImageError

_Coded = UInt8[np.ndarray, "_height _width _channels"]
LEAST_ZEROS = 32
"""Zero bytes in a row of compressed pixels that need an explanation."""
_ZEROS = re.compile(rb"\0{32,}")
_BLOCK = 8


def check_zeros(coded: bytes, pixels: _Coded | None, *, blocks: float = 0) -> None:
    """Refuse data with more zero bytes in a row than the picture has even blocks for.

    Args:
        coded: compressed pixels, without metadata.
        pixels: of the picture; None where no even block can explain a zero byte.
        blocks: even blocks of 8 x 8 pixels that a zero byte stands for at least.

    Raises:
        ImageError: it has.
    """
    longest = max((len(each) for each in _ZEROS.findall(coded)), default=0)
    if longest and (pixels is None or _even_blocks(pixels) < longest * blocks):
        raise ImageError(
            "corrupt", f"{longest} zero bytes stand where pixels should be: part of it is lost"
        )


def _even_blocks(pixels: _Coded) -> int:
    """Blocks of 8 x 8 pixels without detail: what rises from pixel to pixel rises alike in all
    rows."""
    height, width = (side // _BLOCK for side in pixels.shape[:2])
    green = pixels[: height * _BLOCK, : width * _BLOCK, 1].astype(np.int16)
    rises = np.abs(np.diff(np.diff(green, axis=0), axis=1)) <= 1
    rises = np.pad(rises, ((0, 1), (0, 1)), constant_values=True)
    inner = rises.reshape(height, _BLOCK, width, _BLOCK)[:, 1:-2, :, 1:-2]
    return int(inner.all(axis=(1, 3)).sum())
