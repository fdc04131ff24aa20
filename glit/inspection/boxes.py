"""Check boxes: inside the picture, not empty, and in the units and the frame that are due."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from glit.data.frames import TURNED, XYXY, checked_size, fit_frame
from glit.inspection.items import Item

_SLACK_PX = 1.0
"""Pixels by which published boxes leave their picture through rounding."""
_SLACK_SHARE = 0.005
_LARGEST_SHARE = 1.5
"""Above it, a number cannot be meant as a share."""
_THOUSAND = 1000.0
Fault = tuple[str, str]
Change = Callable[[float, float, float, float], XYXY]


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureSize:
    """Size of an image file."""

    width: int
    height: int
    """Pixels, after EXIF orientation."""
    orientation: int = 1


def box_faults(item: Item, picture: PictureSize | None) -> Iterator[Fault]:
    """Yield the faults of an image's boxes.

    A fault that all boxes share, such as other units, is named once instead of a fault of every
    box. It takes two boxes at least, as one alone may fit by chance.

    Args:
        item: the image.
        picture: of its file, where that can be read.
    """
    size, frame = _frame(item.stated, picture)
    if frame:
        yield frame
    if other := _other_units(item, size):
        yield other
        return
    slack = _SLACK_SHARE if item.shares else _SLACK_PX
    size = (1.0, 1.0) if item.shares else size
    bad = [_fault(box, size, slack) for box in item.boxes]
    if not any(bad):
        return
    together = size and _together(item, bad, size, slack, picture)
    if together:
        yield together
        return
    yield from (fault for fault in bad if fault)


def pixel_box(item: Item, number: int, picture: PictureSize) -> XYXY:
    """A box of an item in pixels of its upright picture.

    Raises:
        ValueError: the box is in a picture of another shape.
    """
    size = (float(picture.width), float(picture.height))
    frame = fit_frame(item.stated or size, size, lambda: picture.orientation)
    sides = (*frame.stated, *frame.stated) if item.shares else (1, 1, 1, 1)
    return frame.box([e * side for e, side in zip(item.boxes[number], sides, strict=True)])


def named_boxes(item: Item, detail: str, picture: PictureSize) -> list[XYXY]:
    """The boxes that the detail of a fault names, in pixels of the upright picture; those of a
    picture of another shape are left."""
    named = [number for number, box in enumerate(item.boxes) if _said(box) in detail]
    with contextlib.suppress(ValueError):
        return [pixel_box(item, number, picture) for number in named]
    return []


def box_frame(item: Item, picture: PictureSize | None) -> tuple[float, float] | None:
    """Width and height of the picture that an item's boxes are in; None if nothing tells."""
    return _frame(item.stated, picture)[0]


def _frame(
    stated: tuple[Any, Any] | None, picture: PictureSize | None
) -> tuple[tuple[float, float] | None, Fault | None]:
    """The size of the picture that the boxes are in, and the fault of the stated one."""
    if stated is None and picture is None:
        return None, None
    if picture is None:
        try:
            return checked_size(stated or ()), None
        except ValueError as error:
            return None, ("stated-shape", str(error))
    size = (float(picture.width), float(picture.height))
    if stated is None:
        return size, None
    try:
        frame = fit_frame(stated, size, lambda: picture.orientation)
    except ValueError as error:
        return None, ("stated-shape", str(error))
    said = f"{frame.stated[0]:g}x{frame.stated[1]:g} stated, the file has {size[0]:g}x{size[1]:g}"
    if frame.change == "turned":
        return frame.stated, ("stated-turned", f"{said} once upright")
    return frame.stated, ("stated-size", said) if frame.change else None


def _other_units(item: Item, size: tuple[float, float] | None) -> Fault | None:
    """Pixels where shares are due, or the other way round: nobody draws boxes of a pixel."""
    good = [box for box in item.boxes if all(map(math.isfinite, box))]
    edges = [edge for box in good for edge in box]
    if item.shares:
        large = sum(edge > _LARGEST_SHARE for edge in edges)
        if large > 1 and 2 * large >= len(good):
            return "box-units", f"numbers up to {max(edges):g}, where shares of 0 to 1 are due"
        return None
    large = size is None or min(size) >= 8
    within = good and large and max(edges) <= 2 and min(edges) >= -1
    if within and (len(good) > 1 or any(edge != int(edge) for edge in edges)):
        return "box-units", f"{_said(good[0])} is in shares of 0 to 1, where pixels are due"
    return None


def _fault(box: XYXY, size: tuple[float, float] | None, slack: float) -> Fault | None:
    """The fault of one box."""
    x0, y0, x1, y1 = box
    if not all(map(math.isfinite, box)):
        return "box-empty", f"{_said(box)} is not finite"
    if x0 >= x1 or y0 >= y1:
        return "box-empty", f"{_said(box)} is empty or turned inside out"
    far = (math.inf, math.inf) if size is None else size
    if x0 < -slack or y0 < -slack or x1 > far[0] + slack or y1 > far[1] + slack:
        of = "" if size is None else f" of {size[0]:g}x{size[1]:g}"
        return "box-outside", f"{_said(box)} leaves the picture{of}"
    return None


def _together(
    item: Item,
    bad: Sequence[Fault | None],
    size: tuple[float, float],
    slack: float,
    picture: PictureSize | None,
) -> Fault | None:
    """The one fault that explains those of all boxes."""
    boxes, first = item.boxes, _said(item.boxes[0])
    if len(boxes) < 2 or not all(math.isfinite(edge) for box in boxes for edge in box):
        return None

    def fit(change: Change) -> bool:
        return not any(_fault(change(*box), size, slack) for box in boxes)

    if item.corners == "xyxy" and fit(lambda x, y, x1, y1: (x, y, x + x1, y + y1)):
        return "box-corners", f"{first} is a corner and a size, two corners are due"
    if item.corners == "xywh" and fit(lambda x, y, x1, y1: (x, y, x1 - x, y1 - y)):
        return "box-corners", f"{first}, as read, has two corners for a corner and a size"
    if item.corners == "cxcywh" and (form := _for_centre(fit)):
        return "box-corners", f"{first}, as read, has {form} for a centre and a size"
    if item.shares:
        return None
    turned = picture is not None and picture.orientation in TURNED and item.stated is None
    if turned and not any(_fault(box, (size[1], size[0]), slack) for box in boxes):
        return "stated-turned", f"{first} fits the picture before its EXIF orientation"
    number = sum(fault is not None for fault in bad)
    inside = all(0 <= e <= _THOUSAND and e == round(e) for e in _edges(item))
    if inside and 2 * number >= len(boxes) and min(size) < _THOUSAND and not _inverted(item):
        return "box-units", f"{first} is in thousandths, where pixels are due"
    return None


def _for_centre(fit: Callable[[Change], bool]) -> str:
    """Name what the file may have in place of centres and sizes; empty if it explains no fault."""
    if fit(lambda x, y, x1, y1: ((x + x1) / 2, (y + y1) / 2, x1 - x, y1 - y)):
        return "two corners"
    if fit(lambda x, y, x1, y1: ((x + x1) / 2, (y + y1) / 2, 1.5 * x1 - x / 2, 1.5 * y1 - y / 2)):
        return "a corner and a size"
    return ""


def _edges(item: Item) -> Iterator[float]:
    """The numbers that the file has."""
    for x0, y0, x1, y1 in item.boxes:
        yield from (x0, y0, x1 - x0, y1 - y0) if item.corners == "xywh" else (x0, y0, x1, y1)


def _inverted(item: Item) -> bool:
    return any(box[0] >= box[2] or box[1] >= box[3] for box in item.boxes)


def _said(box: Sequence[float]) -> str:
    return f"[{', '.join(f'{edge:.6g}' for edge in box)}]"
