"""An image of a published dataset of boxes, as it is read, and the move of its boxes to its file.

An image whose entry cannot be right is left out and named: a phrase that its caption does not have,
a box of a picture of another shape.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glit.data.frames import Frame, checked_size
from glit.data.polygons import segmentation_text
from glit.data.records import is_empty
from glit.data.rle import checked_mask
from glit.inputs.published.files import MALFORMED, told
from glit.inputs.published.stated_sizes import file_frame
from glit.storage.members import is_utf8
from glit.text.spans import CleanText, Span

_LABEL_CHARS = 1000
"""Characters of a label, as in files of regions."""
_ROUNDING = 0.01
"""By which a score may leave 0 and 1."""


@dataclass(slots=True, kw_only=True)
class RegionImage:
    """An image, its caption and its regions."""

    path: Path
    """The image file; it need not exist."""
    published: str = ""
    """The path that its entry has, where the image may lie in another folder."""
    where: str = ""
    """Its entry, for people: ``line 4``."""
    shares: bool = True
    """True if boxes are shares of width and height; else pixels."""
    stated: tuple[Any, Any] | None = None
    """Width and height of the picture that the boxes are in, as published; None if none are."""
    caption: str = ""
    rows: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)
    """Regions by their box, xyxy, and for a further label of the same box that label; texts are
    spans of the caption."""
    said: dict[str, int] = field(default_factory=dict)
    """Offset of each text in the caption."""
    fault: str = ""
    """Why the image has to be left out; empty for a good one."""
    left_out: list[str] = field(default_factory=list)
    """Faults of those of its regions that cannot be right."""
    licence: str = ""
    """As the file states it; empty if it does not."""
    picture: Callable[[], bytes] | None = None
    """Reads the encoded picture, if the annotations hold it; ``path`` is then its place there."""

    def say(self, text: str) -> Callable[[int, int], Span]:
        """Add a text to the caption; returns what makes its spans those of the caption.

        A text that is there already is not said again. Texts that follow one another end with a
        full stop; one alone stays as it is.

        Raises:
            ValueError: it holds half of a character, which no file takes.
        """
        if not is_utf8(text):
            raise ValueError(f"the text {text[:40]!a} is no valid Unicode")
        clean = CleanText(text, strip=True)
        plain = clean.text
        if plain not in self.said:
            before = f"{_ended(self.caption)} " if self.caption and plain else self.caption
            self.said[plain] = len(before)
            self.caption = before + (_ended(plain) if before else plain)
        start = self.said[plain]

        def moved(first: int, last: int) -> Span:
            own = clean.span(first, last)
            return start + own[0], start + own[1]

        return moved

    def say_all(self, text: str) -> Span:
        """Add a text to the caption; its span there."""
        return self.say(text)(0, len(text))

    def add(self, box: Sequence[float], *, key: str = "", label: Any = "", **rest: Any) -> None:
        """Add a region, and to ``rest[key]`` of one with this box.

        Args:
            box: xyxy.
            key: ``sentences`` or ``phrases``; empty for neither.
            label: of the region, a text or a number.
            rest: ``score``, ``spans``: those of the texts, and ``segmentation``: COCO's, in
                pixels of the stated picture.
        """
        numbers = tuple(map(as_number, box[:4]))
        if len(numbers) != 4:
            raise ValueError(f"a box of {len(numbers)} numbers, want four")
        label = named(label)
        if len(label) > _LABEL_CHARS:
            raise ValueError(f"a label of {len(label)} characters, want at most {_LABEL_CHARS}")
        score = 0.0 if rest.get("score") is None else as_number(rest["score"])
        if not -_ROUNDING <= score <= 1 + _ROUNDING:
            raise ValueError(f"a score of {score:g}, want one from 0 to 1")
        if label and self.rows.get(numbers, {}).get("label", label) != label:
            numbers = (*numbers, label)
        row = self.rows.setdefault(numbers, {})
        if label:
            row["label"] = label
        if rest.get("segmentation"):
            with self.record("a mask"):
                row["mask"] = self._mask(rest["segmentation"], numbers[:4])
        if rest.get("score") is not None:
            row.setdefault("score", min(max(score, 0.0), 1.0))
        for span in rest.get("spans", ()):
            if list(span) not in row.setdefault(key, []):
                row[key].append(list(span))

    def _mask(self, segmentation: Any, box: tuple[float, ...]) -> dict[str, Any]:
        """A mask as a build reads it. Its box may leave the picture, which is cut later."""
        width, height = map(int, checked_size(self.stated or (0, 0)))
        text = segmentation_text(segmentation, height=height, width=width)
        x0, y0, x1, y1 = box
        within = (max(x0, 0.0), max(y0, 0.0), min(x1, width), min(y1, height))
        counts = checked_mask(text, within, height=height, width=width)
        return {"size": [height, width], "counts": counts}

    @contextlib.contextmanager
    def record(self, name: str = "") -> Iterator[None]:
        """Read a region, or a part of it; a damaged one is left out and told by its name."""
        try:
            yield
        except MALFORMED as error:
            self.left_out.append(f"{name}: {told(error)}" if name else told(error))

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Read what is of the image; a damaged one is left out and told."""
        try:
            yield
        except MALFORMED as error:
            self.fault = told(error)


def _ended(text: str) -> str:
    """The text with a full stop, if nothing ends it."""
    return text if not text or text[-1] in ".!?\"')”’" else f"{text}."


def outline(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, ...], list[list[float]]]:
    """The box around points, and the polygon of them as COCO has it.

    >>> outline([(1, 2), (5, 2), (5, 9)])
    ((1, 2, 5, 9), [[1, 2, 5, 2, 5, 9]])
    """
    across, down = zip(*points, strict=True)
    box = (min(across), min(down), max(across), max(down))
    return box, [[edge for point in points for edge in point]]


def turned_box(
    box: Sequence[float], degrees: Any, *, about: tuple[float, float] | None = None
) -> tuple[Sequence[float], list[list[float]] | None]:
    """The box around a turned box, and the polygon of that; of one that is not turned itself.

    Args:
        box: xyxy, before it is turned.
        degrees: clockwise; None for none.
        about: the point that stays; None for the middle of the box.

    >>> turned_box((30, 50, 130, 70), 90)[0]
    (70.0, 10.0, 90.0, 110.0)
    """
    angle = math.radians(as_number(degrees or 0) % 360)
    if not angle:
        return box, None
    x0, y0, x1, y1 = map(as_number, box)
    x, y = about or ((x0 + x1) / 2, (y0 + y1) / 2)
    sine, cosine = round(math.sin(angle), 12), round(math.cos(angle), 12)
    corners = [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
    return outline(
        [
            (x + (a - x) * cosine - (b - y) * sine, y + (a - x) * sine + (b - y) * cosine)
            for a, b in corners
        ]
    )


def named(name: Any) -> str:
    """The name of a class, which may be a number.

    Raises:
        ValueError: it is none: ``null`` is not the class ``None``.

    >>> named("cat"), named(3)
    ('cat', '3')
    """
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise ValueError(f"{str(name)[:40]} is no name of a class")
    return str(name)


def as_number(value: Any) -> float:
    """A finite number.

    Raises:
        ValueError: it is none.
        TypeError: it is no number at all.
    """
    if isinstance(value, bool):
        raise TypeError(f"{value} is no number")
    found = float(value)
    if not math.isfinite(found):
        raise ValueError(f"a box or score holds {value}, want finite numbers")
    return found


def frame_of(image: RegionImage) -> tuple[Frame | None, str]:
    """Return how an image's boxes move to its file, and why they cannot; neither for a damaged
    file, which a build drops, and for shares without a stated size."""
    if image.shares and image.stated is None:
        return None, ""
    try:
        encoded = image.picture() if image.picture else image.path
        return file_frame(encoded, image.stated), ""
    except OSError:
        return None, ""
    except ValueError as error:
        return None, str(error)


def cut_box(box: Sequence[float], size: Sequence[float]) -> tuple[float, ...] | None:
    """A box cut at the edges of a picture of this width and height; None if nothing is left."""
    inside = tuple(min(max(e, 0.0), end) for e, end in zip(box, (*size, *size), strict=True))
    return None if is_empty(inside) else inside


def moved_box(box: Sequence[float], frame: Frame | None, *, shares: bool) -> tuple[float, ...]:
    """A box in the upright image, in the units it had."""
    if frame is None or not frame.change or (shares and frame.change == "scaled"):
        return tuple(box)
    if not shares:
        return frame.box(box)
    sides = (*frame.stated, *frame.stated)
    found = frame.box([share * side for share, side in zip(box, sides, strict=True)])
    return tuple(edge / side for edge, side in zip(found, (*frame.size, *frame.size), strict=True))
