"""Show regions to the matcher: alone, with some context, or in a blurred image.

``context``  the box grown by a quarter of its sides, all around
``dense``    not at all: the patches under the region of one pass over the whole image
``blur``     the whole image, blurred outside the region (Subramanian et al. 2022, ReCLIP, section
             3.1; Yang et al. 2023, FGVP, "blur reverse mask")
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from PIL import Image, ImageFilter

from glit.data.geometry import Boxes
from glit.images import Pixels

CropView = Literal["tight", "context", "blur", "dense"]

CONTEXT_SHARE = 0.25
"""The share of the box's width and height that is added on every side and cut at the image's edge.
"""
BLUR_SHARE = 0.05
"""Standard deviation of the blur, as a share of the image's shorter side."""
_BLURRED_SIDE_PX = 512
"""Longer sides are shrunk to this first: models see less, and a blur of megapixels is slow."""


def grown(boxes: Boxes, *, width: int, height: int) -> Boxes:
    """Boxes [R, 4] with context around them, inside the image."""
    sides = boxes[:, 2:] - boxes[:, :2]
    wide = np.concatenate([boxes[:, :2], boxes[:, 2:]], axis=1)
    wide[:, :2] -= CONTEXT_SHARE * sides
    wide[:, 2:] += CONTEXT_SHARE * sides
    limit = np.array([width, height, width, height], dtype=np.float64)
    return np.clip(wide, 0, limit)


def spotlights(image: Pixels, boxes: Boxes) -> list[Pixels]:
    """Return for each box [R, 4] the image, blurred outside it; sides of at most 512 px."""
    picture = Image.fromarray(image)
    scale = min(1.0, _BLURRED_SIDE_PX / max(picture.size))
    if scale < 1:
        size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
        picture = picture.resize(size, Image.Resampling.BICUBIC)
    sharp = np.asarray(picture)
    radius = BLUR_SHARE * min(picture.size)
    blurred = np.asarray(picture.filter(ImageFilter.GaussianBlur(radius)))
    factor = np.array([picture.width / image.shape[1], picture.height / image.shape[0]] * 2)
    found = []
    for x0, y0, x1, y1 in (boxes * factor).tolist():
        shown = blurred.copy()
        rows = slice(int(y0), max(int(y0) + 1, int(np.ceil(y1))))
        columns = slice(int(x0), max(int(x0) + 1, int(np.ceil(x1))))
        shown[rows, columns] = sharp[rows, columns]
        found.append(shown)
    return found
