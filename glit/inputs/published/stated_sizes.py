"""Move the boxes of a benchmark to the images that are there."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glit.data.frames import CHANGES, XYXY, Frame, fit_frame, stated_size
from glit.images import ImageError, picture_frame


def file_frame(path: Path | bytes, stated: tuple[Any, Any] | None) -> Frame | None:
    """Return how boxes in a picture of the stated size, or of its own, move to an image file, or
    to an encoded picture; None for one that cannot be read, which others report.

    Raises:
        ValueError: the stated picture has another shape.
    """
    try:
        width, height, orientation = picture_frame(path)
    except (OSError, ImageError):
        return None
    return fit_frame(stated or (width, height), (width, height), lambda: orientation)


class StatedSizes:
    """The sizes of the pictures that a file's boxes are in.

    Args:
        entries: by image file, the file's entry, which may state ``width`` and ``height``.
    """

    def __init__(self, entries: Mapping[Path, dict[str, Any]]) -> None:
        self._entries = entries
        self._frames: dict[Path, Frame | None] = {}

    def box(self, path: Path, box: XYXY) -> XYXY:
        """A box in the upright image.

        Raises:
            ValueError: the file states a picture of another shape.
        """
        if path not in self._frames:
            self._frames[path] = self._frame(path)
        frame = self._frames[path]
        return box if frame is None else frame.box(box)

    def _frame(self, path: Path) -> Frame | None:
        """None if the file states no size, or the image cannot be read, which others report."""
        stated = stated_size(self._entries.get(path, {}))
        try:
            return None if stated is None else file_frame(path, stated)
        except ValueError as error:
            raise ValueError(f"{path.name}: boxes {error}") from error

    def warn(self, annotations: Path) -> None:
        """Say how many images' boxes were moved."""
        changes = [frame.change for frame in self._frames.values() if frame is not None]
        for change, why in CHANGES.items():
            if number := changes.count(change):
                images = "1 image" if number == 1 else f"{number} images"
                warnings.warn(
                    f"{annotations}: boxes of {images} were {change}, as {why}", stacklevel=3
                )
