"""Check image files: whether they are there, sound, large enough, and in a test set."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from glit.data.resemblance import Thumbnail, thumbnail
from glit.errors import StorageError, first_line
from glit.images import ImageError, decode, picture_frame
from glit.images.location import has_location
from glit.inputs.rights import read_rights
from glit.inspection.boxes import PictureSize
from glit.inspection.items import Item
from glit.inspection.matches import Matches, Squares

LEAST_SIDE = 32
"""Pixels; a side of fewer shows a model next to nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureCheck:
    """Findings about an image file."""

    faults: tuple[tuple[str, str], ...] = ()
    missing: bool = False
    size: PictureSize | None = None
    sha256: str = ""
    licence: str = ""
    """The licence that the picture's own metadata names."""
    thumbnail: Thumbnail | None = None
    """To compare with those of a test set; None if nobody asks."""
    squares: Squares | None = None
    """To match with its texts; None if nobody asks."""


def check_picture(item: Item, *, compare: bool, matches: Matches | None) -> PictureCheck | None:
    """Read and decode an item's picture; None if none may be read.

    Args:
        item: the image.
        compare: make a thumbnail, for a test set.
        matches: cuts the picture for a model; None for none.

    Raises:
        StorageError: a store cannot be reached.
    """
    if item.picture is None:
        return None
    try:
        data = item.picture()
    except FileNotFoundError:
        return PictureCheck(missing=True)
    except StorageError:
        raise
    except (OSError, ValueError) as error:
        return PictureCheck(faults=(("picture-damaged", f"cannot be read: {first_line(error)}"),))
    try:
        pixels = decode(data)
        orientation = picture_frame(data)[2]
    except ImageError as error:
        code = "picture-format" if error.reason == "unsupported_format" else "picture-damaged"
        return PictureCheck(faults=((code, str(error)),))
    height, width = pixels.shape[:2]
    rights = read_rights(data)
    faults = [("picture-small", f"{width}x{height} pixels")] * (min(width, height) < LEAST_SIDE)
    low, high = pixels.min(axis=(0, 1)), pixels.max(axis=(0, 1))
    if (low == high).all():
        faults.append(("picture-blank", f"one colour, RGB {low.tolist()}, transparency over white"))
    if rights.mining == "prohibited":
        faults.append(("mining-prohibited", f"by its {rights.sources['mining']}"))
    if has_location(data):
        faults.append(("picture-location", "EXIF or XMP holds coordinates"))
    return PictureCheck(
        faults=tuple(faults),
        licence=rights.licence or "",
        size=PictureSize(width=width, height=height, orientation=orientation),
        sha256=hashlib.sha256(data).hexdigest() if compare else "",
        thumbnail=thumbnail(pixels) if compare else None,
        squares=None if matches is None else matches.cut(item, pixels, orientation),
    )
