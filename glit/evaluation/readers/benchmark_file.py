"""A benchmark's file in COCO's layout, which has to be whole: one box less is another figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from glit.data.coco import CocoFile
from glit.data.frames import XYXY
from glit.data.json_files import load_json
from glit.inputs.published.files import check_place
from glit.inputs.published.label_exports import instance_box
from glit.inputs.published.stated_sizes import StatedSizes


class BenchmarkFile:
    """Images and boxes of a file.

    Args:
        file: in COCO's layout.
        folder: of the images.

    Raises:
        OSError, ValueError, KeyError, TypeError, AttributeError: it is not in COCO's layout, or an
            image or an annotation lacks the other.
    """

    def __init__(self, file: Path, folder: Path) -> None:
        self.values = load_json(file)
        self.coco = CocoFile(self.values).checked()
        for key in self.coco.without_image:
            raise ValueError(self.coco.no_image(key))
        self._paths = [check_place(folder / image.file_name, folder) for image in self.coco.images]
        entries = [image.entry for image in self.coco.images]
        self.sizes = StatedSizes(dict(zip(self._paths, entries, strict=True)))
        """Moves boxes to the images that are there."""

    def boxes(self) -> Iterator[tuple[Path, list[tuple[dict[str, Any], XYXY]]]]:
        """Yield every image's path, and its annotations with their boxes as the file states them;
        without boxes that have no width or no height.

        Raises:
            ValueError: a box is not finite, or ends before it begins.
        """
        for path, image in zip(self._paths, self.coco.images, strict=True):
            kept = [each for _, each in image.annotations if 0 not in each["bbox"][2:]]
            yield path, [(each, checked_box(instance_box(each)[0])) for each in kept]


def checked_box(box: Sequence[float]) -> XYXY:
    """A box as corners.

    Raises:
        ValueError: it is empty or not finite.
    """
    x0, y0, x1, y1 = box
    if not (x0 < x1 and y0 < y1 and max(map(abs, box)) < 1e9):
        raise ValueError(f"box {[*box]} is empty or not finite")
    return x0, y0, x1, y1
