"""Crop and mirror images at random, together with their local pairs.

A crop has a share of the image's area and nearly its shape (torchvision's range of ratios, taken of
the image's own shape, since images are squeezed into the model's square). A region of which less
than half is left takes its pair out: its sentence would be trained on something else.

Only images whose caption says nothing that a mirror makes wrong are mirrored: no left, no right, no
way a clock turns, and no quotation, which is writing that can be read.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Shaped

from glit.dataset.local_pairs import LocalPair

_LEAST_SEEN = 0.5
_SIDES = re.compile(
    r"\b(left|right)(most|wards?|hand|handed)?\b|\b(counter|anti)?-?clockwise\b|[\"“”«»„]",
    re.IGNORECASE,
)
_RATIO = math.log(4 / 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Augmentation:
    """The crop and the mirroring of one image in one epoch."""

    box_xyxy: tuple[int, int, int, int]
    """The part of the image that is kept, pixels."""
    mirrored: bool

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the crop."""
        x0, y0, x1, y1 = self.box_xyxy
        return x1 - x0, y1 - y0

    def image(self, image: Shaped[np.ndarray, "h w *c"]) -> Shaped[np.ndarray, "ch cw *c"]:
        """The pixels of the crop, of an image or of a mask."""
        x0, y0, x1, y1 = self.box_xyxy
        kept = image[y0:y1, x0:x1]
        return np.ascontiguousarray(kept[:, ::-1] if self.mirrored else kept)

    def pairs(self, pairs: tuple[LocalPair, ...]) -> tuple[LocalPair, ...]:
        """The pairs that remain in the crop, in its pixels."""
        found = []
        for pair in pairs:
            box = self._moved(pair.box_xyxy)
            if _area(box) > 0 and _area(box) >= _LEAST_SEEN * _area(pair.box_xyxy):
                found.append(replace(pair, box_xyxy=box))
        return tuple(found)

    def _moved(self, box: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
        left, top, right, bottom = self.box_xyxy
        x0, x1 = (min(max(x, left), right) - left for x in (box[0], box[2]))
        y0, y1 = (min(max(y, top), bottom) - top for y in (box[1], box[3]))
        if self.mirrored:
            x0, x1 = right - left - x1, right - left - x0
        return x0, y0, x1, y1


def _area(box: tuple[float, float, float, float]) -> float:
    return max(box[2] - box[0], 0) * max(box[3] - box[1], 0)


def draw_augmentation(
    width: int,
    height: int,
    caption: str,
    *,
    min_crop: float,
    flip: float,
    draw: np.random.Generator,
) -> Augmentation:
    """Choose a crop and whether it is mirrored.

    Args:
        width: of the image, pixels.
        height: of the image, pixels.
        caption: says whether a mirror would make it wrong.
        min_crop: least share of the area that is kept.
        flip: how probable it is that an image is mirrored that may be.
        draw: randomness of this sample and epoch.
    """
    share, ratio = draw.uniform(min_crop, 1.0), math.exp(draw.uniform(-_RATIO, _RATIO) / 2)
    left, top, turned = draw.uniform(size=3).tolist()
    side = math.sqrt(share)
    # a crop too long for the image is as long as the image, and of the same area
    wide = min(max(side * ratio, share), 1.0)
    kept_width = min(max(round(width * wide), 1), width)
    kept_height = min(max(round(height * share / wide), 1), height)
    x0, y0 = round(left * (width - kept_width)), round(top * (height - kept_height))
    return Augmentation(
        box_xyxy=(x0, y0, x0 + kept_width, y0 + kept_height),
        mirrored=turned < flip and not _SIDES.search(caption),
    )
