"""Images with a label for every pixel: Pascal VOC and ADE20K in their folders."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from glit.errors import InputError
from glit.evaluation.questions import QuestionImages
from glit.images import ImageError, open_with_pillow, pixel_limit
from glit.images.soundness import check_before

IGNORED = -1
"""Label of pixels that are not counted."""
_VOC = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "dining table", "dog", "horse", "motorbike", "person", "potted plant", "sheep", "sofa",
    "train", "tv monitor",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledImages:
    """Image files, files with their labels, and names of the classes."""

    images: list[Path]
    maps: list[Path]
    classes: list[tuple[str, ...]]
    """Label k + 1 of a file is class k; 0 and labels above are not counted."""


class LabelMaps(QuestionImages):
    """Image files with a label for every pixel."""

    def __init__(self, name: str, labelled: LabelledImages) -> None:
        super().__init__(name, labelled.images)
        self.maps = labelled.maps
        self.classes = labelled.classes

    def labels(self, index: int) -> Int[np.ndarray, "h w"]:
        """The class of every pixel of an image, or ``IGNORED``.

        Raises:
            InputError: the file cannot be read, or has another size than the image.
        """
        path = self.maps[index]
        try:
            data = path.read_bytes()
            with open_with_pillow(io.BytesIO(data), formats=["PNG"]) as image:
                width, height = image.size
                if width * height > pixel_limit() or image.mode not in ("L", "P"):
                    raise ValueError(f"{width} x {height} pixels of mode {image.mode}")
                check_before(data, image)
                found = np.asarray(image).astype(np.int64) - 1
        except (ImageError, OSError, ValueError, SyntaxError) as error:
            raise InputError(f"{path}: no labels of pixels ({error})") from error
        if (width, height) != self.size(index):
            raise InputError(f"{path}: {width} x {height} pixels, its image has another size")
        return np.where((found >= 0) & (found < len(self.classes)), found, IGNORED)


def voc(folder: Path, split: str | None) -> LabelledImages:
    """Pascal VOC 2012 (``VOCdevkit/VOC2012``): 20 classes, the background is not counted."""
    parts = folder / "ImageSets" / "Segmentation"
    names = (parts / f"{split or 'val'}.txt").read_text(encoding="utf-8").split()
    return LabelledImages(
        images=[folder / "JPEGImages" / f"{name}.jpg" for name in names],
        maps=[folder / "SegmentationClass" / f"{name}.png" for name in names],
        classes=[(name,) for name in _VOC],
    )


def ade20k(folder: Path, split: str | None) -> LabelledImages:
    """ADE20K's 150 classes (``ADEChallengeData2016``), named by its ``objectInfo150.txt``."""
    part = split or "validation"
    maps = sorted((folder / "annotations" / part).glob("*.png"))
    with (folder / "objectInfo150.txt").open(encoding="utf-8-sig", newline="") as file:
        header, *rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    if uneven := [row for row in rows if len(row) != len(header)]:
        raise ValueError(f"objectInfo150.txt: {len(header)} columns, but a row is {uneven[0]}")
    return LabelledImages(
        images=[folder / "images" / part / f"{path.stem}.jpg" for path in maps],
        maps=maps,
        classes=[tuple(name.strip() for name in row[-1].split(",")) for row in rows],
    )


READERS: dict[str, Callable[[Path, str | None], LabelledImages]] = {"voc": voc, "ade20k": ade20k}
"""By the name that ``--format`` takes."""


def open_label_maps(name: str, folder: Path, *, split: str | None, limit: int = 0) -> LabelMaps:
    """Open a folder of one of the layouts.

    Args:
        name: one of READERS.
        folder: as unpacked.
        split: the part; default ``val`` or ``validation``.
        limit: only the first images, 0 for all.

    Raises:
        InputError: it is not of that layout, or files are missing.
    """
    try:
        found = READERS[name](folder, split)
    except (OSError, ValueError, IndexError) as error:
        raise InputError(
            f"{folder}: not {name} as published ({error}); see docs/evaluation.md for the layout"
        ) from error
    kept = slice(limit or None)
    if not found.images[kept]:
        raise InputError(f"{folder}: no image of {name}{f' in {split}' if split else ''}")
    missing = [path for path in found.maps[kept] if not path.is_file()]
    if missing:
        raise InputError(f"{folder}: {len(missing)} label files are missing (first: {missing[0]})")
    return LabelMaps(
        name,
        LabelledImages(images=found.images[kept], maps=found.maps[kept], classes=found.classes),
    )
