"""An image with its texts and boxes, whatever file it was read from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from glit.data.frames import XYXY
from glit.inspection.findings import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSpan:
    """A part of the first caption."""

    start: int
    end: int
    words: str | None = None
    """The words that stand there, if the file says so."""


def as_box(numbers: Iterable[float]) -> XYXY:
    """A box of four numbers.

    Raises:
        ValueError: there are not four.
    """
    x0, y0, x1, y1 = numbers
    return x0, y0, x1, y1


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An image and what a file says about it."""

    name: str
    """Path of the image as the file has it, from the folder of pictures."""
    where: str = ""
    """Its entry, for people: ``line 4``."""
    captions: tuple[str, ...] | None = None
    """None if the format has none, or no caption is due."""
    spans: tuple[TextSpan, ...] = ()
    boxes: tuple[XYXY, ...] = ()
    """xyxy, as read: ``x0 >= x1`` is possible, NaN too."""
    pairs: tuple[tuple[int, str], ...] = ()
    """Numbers of boxes, each with a phrase or sentence of it."""
    shares: bool = False
    """True if boxes are shares of width and height; else pixels."""
    corners: Literal["xyxy", "xywh", "cxcywh", ""] = "xyxy"
    """How the format states a box: two corners, corner and size, or centre and size; empty if each
    box says it itself, or any two corners will do."""
    stated: tuple[Any, Any] | None = None
    """Width and height of the picture that the boxes are in, as the file has them."""
    picture: Callable[[], bytes] | None = None
    """Reads the encoded picture; None where none may be read."""
    faults: tuple[tuple[str, str], ...] = ()
    """Codes and details of faults that reading it found."""
    looked_at: tuple[tuple[str, int], ...] = ()
    """Codes, and the number of things that reading it looked at."""
    licence: str = ""


class Source(Protocol):
    """A dataset or a file that items come from."""

    what: str
    format: str
    """``glit``, a published format, ``captions``, ``regions`` or ``images``."""
    pictures: str
    """The folder of pictures, for people; empty if they are in the file."""
    total: int
    """Images, where that is known before; else 0."""
    unlooked: dict[str, str]
    """Checks that were not made, by code, each with the reason."""

    def items(self) -> Iterator[Item]:
        """Yield every image once, in the order of the file."""
        ...

    @property
    def language(self) -> str:
        """Code of the captions' language; empty if nobody says."""
        ...

    def estimates(self) -> tuple[Estimate, ...]:
        """Estimates of wrong pairs, once all items were read."""
        ...
