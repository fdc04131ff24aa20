"""Crop and mirror images at random, together with their local pairs.

A crop has a share of the image's area and nearly its shape (torchvision's range of ratios, taken of
the image's own shape, since images are squeezed into the model's square). A region of which less
than half is left takes its pair out: its sentence would be trained on something else.

Only images whose caption says nothing that a mirror makes wrong are mirrored: no left, no right, no
way a clock turns, and no quotation, which is writing that can be read. The words for the sides are
known in some twenty languages.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Shaped

from glit.dataset.local_pairs import LocalPair
from glit.text.sentences import quoted

_LEAST_SEEN = 0.5
_SIDES = re.compile(
    r"\b(left|right)(most|wards?|hand|handed)?\b|\b(counter|anti)?-?clockwise\b"
    r"|\b(links|rechts|link(e|er|es|en|em)|recht(e|er|es|en|em)|linker|uhrzeigersinn"
    r"|gauche|droite?s?|izquierd[oa]s?|derech[oa]s?|sinistr[aoie]|destr[aoie]|esquerd[oa]s?"
    r"|direit[oa]s?|stâng[aă]?|dreapt[aă]|vänster|höger|venstre|højre|høyre|vasen?\w*|oikea\w*"
    r"|lew[aey]\w*|praw[aey]\w*|vlevo|vpravo|lev[áéýoa]\w*|prav[áéýoa]\w*|bal(ra|oldal\w*)?"
    r"|jobb(ra|oldal\w*)?|sol(da|a|unda)?|sağ(da|a|ında)?|trái|phải|kiri|kanan)\b"
    r"|\b(лев|слева|влево|прав|справа|вправо|ліво|зліва|право)\w*|αριστερ|δεξι|يسار|يمين|שמאל|ימין"
    r"|[左右]|왼|오른|ซ้าย|ขวา|बाएं|बाएँ|दाएं|दाएँ|दाईं|बाईं",
    re.IGNORECASE,
)
_MARKS = re.compile(r"[\"“”«»„‟「」『』]")
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


def may_be_mirrored(caption: str) -> bool:
    """Return whether a caption names no side and quotes nothing.

    >>> may_be_mirrored("A sign says 'STOP'."), may_be_mirrored("Links steht ein Hund.")
    (False, False)
    >>> may_be_mirrored("The dog's ball.")
    True
    """
    return not _SIDES.search(caption) and not quoted(caption) and not _MARKS.search(caption)


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
        mirrored=turned < flip and may_be_mirrored(caption),
    )
