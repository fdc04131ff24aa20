"""Regions of the user, and the sentences and phrases that each of them belongs to.

``NAME.json`` beside ``NAME.jpg`` holds ``{"regions": [{"box": [x0, y0, x1, y1], "label": "cup",
"score": 1.0, "source": "hand", "sentences": ["The cup is white."], "phrases": ["The cup"]}]}``.
Boxes are in pixels of the upright image with exclusive ends, or of another kind of
:data:`BOXES`; everything but the box may be left out. A sentence or phrase may also be
``[start, end]``, characters of the caption as it was given, or ``[start, end, words]``, which is
refused if the caption has other words there. ``"mask"`` is COCO's ``{"size": [height, width],
"counts": ...}``.

``"width"`` and ``"height"``, of the file or of a region, are those of the picture that the boxes
are in; the size of a mask says the same. If they are not those of the upright image, boxes and
masks are scaled or turned to it (:mod:`glit.data.frames`).

The rows of ``--regions FILE`` for an image become the same text, with their numbers in ``rows``.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glit.data.frames import XYXY, Frame, fit_frame, stated_size, upright_orientation, xywh_corners
from glit.data.records import Box, Region
from glit.data.rle import MOST_TEXT, checked_mask, decode_rle, mask_text, read_rle
from glit.text.spans import CleanText, Span, find_phrase, same_words

BOXES = ("box_xyxy", "box_xywh", "box_cxcywh", "box_xyxyn", "box_xywhn", "box_cxcywhn")
"""Names of a box that say what its numbers are: two corners, a corner and the size, or the centre
and the size; pixels, or with ``n`` shares of width and height."""
SHARES = ("box_xyxyn", "box_xywhn", "box_cxcywhn")
_MOST_MASK = 1 << 27
"""Pixels of a mask of another size than its image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CharacterSpan:
    """Characters ``[start, end)`` of the caption as the user wrote it."""

    start: int
    end: int
    words: str | None = None
    """The text that stands there; None if the file does not say."""


Said = str | CharacterSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionOfFile:
    """A region and the sentences and phrases that the file gives to it."""

    region: Region
    sentences: tuple[Said, ...]
    phrases: tuple[Said, ...] = ()

    def places(self, regions: Sequence[Region]) -> list[int]:
        """Return where this region is among those of a table, which holds 32 bits of a number."""
        boxes = np.array([each.box.xyxy for each in regions], dtype=np.float32)
        same = (boxes == np.array(self.region.box.xyxy, dtype=np.float32)).all(axis=1)
        found = np.flatnonzero(same).tolist()
        return [n for n in found if regions[n].label == self.region.label] or found


def read_region_file(
    text: str,
    *,
    width: int,
    height: int,
    orientation: Callable[[], int] = upright_orientation,
) -> list[RegionOfFile]:
    """The regions of a file, best score first.

    Args:
        text: of the file.
        width: of the upright image, pixels.
        height: of the upright image, pixels.
        orientation: reads the EXIF orientation of the image file.

    Raises:
        ValueError: it is not JSON in this layout, or a box does not fit the image.
    """
    try:
        content = json.loads(text)
        entries = content["regions"]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not valid JSON ({error})") from error
    except (KeyError, TypeError) as error:
        raise ValueError('no list of "regions"') from error
    if not isinstance(entries, list):
        raise ValueError(f'"regions" is {entries!r:.40}, want a list')
    rows = content.get("rows")
    found = []
    for number, entry in enumerate(entries):
        try:
            if rows is not None and entry in entries[:number]:
                raise ValueError(f"repeats row {rows[entries.index(entry)]}; leave one of them")
            stated = stated_size(entry) if isinstance(entry, dict) else None
            stated = stated or stated_size(content)
            found.append(_region(entry, stated, (width, height), orientation))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            name = f"region {number}" if rows is None else f"row {rows[number]}"
            raise ValueError(f"{name}: {error}") from error
    if found and min(width, height) > 1 and _are_shares(entries):
        raise ValueError(
            "all its boxes lie in the first pixel; shares of width and height are box_xyxyn, "
            "box_xywhn or box_cxcywhn"
        )
    return sorted(found, key=lambda each: -each.region.score)


def _region(
    entry: Any,
    stated: tuple[Any, Any] | None,
    size: tuple[int, int],
    orientation: Callable[[], int],
) -> RegionOfFile:
    if isinstance(entry, dict):
        entry = {name: value for name, value in entry.items() if value is not None}
    key = next((key for key in ("box", *BOXES) if isinstance(entry, dict) and key in entry), None)
    if key is None:
        raise ValueError(f'found {entry!r:.60}, want an object with a "box"')
    width, height = size
    mask = _mask_frame(entry["mask"], size, orientation) if "mask" in entry else None
    if stated is not None:
        frame = fit_frame(stated, size, orientation)
    else:
        frame = mask or Frame(stated=size, size=size)
    x0, y0, x1, y1 = corners = _corners(key, entry[key], frame)
    if not (0 <= x0 < x1 <= width and 0 <= y0 < y1 <= height):
        raise ValueError(f"{key} {entry[key]} is empty or leaves the {width}x{height} image")
    score = entry.get("score", 1.0)
    if not isinstance(score, int | float) or not 0 <= score <= 1:
        raise ValueError(f"score {score!r}, want 0 to 1")
    region = Region(
        box=Box(x0=x0, y0=y0, x1=x1, y1=y1),
        score=float(score),
        label=_name(entry, "label", ""),
        source=_name(entry, "source", "file"),
        mask=_mask(entry["mask"], mask, corners) if mask else "",
    )
    return RegionOfFile(
        region=region, sentences=_said(entry, "sentences"), phrases=_said(entry, "phrases")
    )


def _name(entry: dict[str, Any], key: str, default: str) -> str:
    """A name, which may be a number."""
    found = entry.get(key, default)
    if isinstance(found, bool) or not isinstance(found, str | int | float):
        raise ValueError(f"{key} {found!r:.60}, want a text")
    return str(found)


def _are_shares(entries: Sequence[dict[str, Any]]) -> bool:
    """Return whether all boxes are called pixels, but must be shares of the image's size: no number
    is above 1, and some are fractions."""
    pixels = [key for key in ("box", *BOXES) if key not in SHARES]
    boxes = [entry[key] for entry in entries for key in pixels if key in entry]
    numbers = [float(each) for box in boxes for each in box]
    return len(boxes) == len(entries) and max(numbers) <= 1 and any(each % 1 for each in numbers)


def box_corners(key: str, box: Any) -> XYXY:
    """The two corners of a box under one of :data:`BOXES`, in its own units."""
    x0, y0, x1, y1 = map(float, box)
    if "cxcywh" in key:
        x0, y0 = x0 - x1 / 2, y0 - y1 / 2
    return xywh_corners((x0, y0, x1, y1)) if "wh" in key else (x0, y0, x1, y1)


def _corners(key: str, box: Any, frame: Frame) -> XYXY:
    """x0, y0, x1, y1 in pixels of the upright image."""
    x0, y0, x1, y1 = box_corners(key, box)
    if key in SHARES:
        width, height = frame.stated if frame.change else frame.size
        x0, y0, x1, y1 = x0 * width, y0 * height, x1 * width, y1 * height
    corners = frame.box((x0, y0, x1, y1))
    if key == "box" and not frame.rounds:
        return corners
    within = frame.cut(corners)
    x0, y0, x1, y1 = (
        inside if abs(inside - edge) <= frame.slack else edge
        for edge, inside in zip(corners, within, strict=True)
    )
    return x0, y0, x1, y1


def _said(entry: dict[str, Any], key: str) -> tuple[Said, ...]:
    said = entry.get(key, [])
    if not isinstance(said, list):
        raise ValueError(f"{key} {said!r:.60}, want a list of texts")
    return tuple(_text_or_span(each, key) for each in said)


def _text_or_span(value: Any, key: str) -> Said:
    match value:
        case str():
            return unicodedata.normalize("NFC", value)
        case [int(start), int(end)]:
            return CharacterSpan(start=start, end=end)
        case [int(start), int(end), str(words)]:
            return CharacterSpan(start=start, end=end, words=words)
    raise ValueError(f"{key} {value!r:.60}, want texts, [start, end] or [start, end, words]")


def placed(caption: CleanText, said: CharacterSpan) -> Span:
    """The span of a caption that a file means.

    Args:
        caption: made of the one that the file counts in.
        said: by the file.

    Raises:
        ValueError: the caption has no such span, or other words there.
    """
    try:
        start, end = caption.span(said.start, said.end)
    except ValueError as error:
        raise ValueError(f"the caption: {error}") from error
    found = caption.text[start:end]
    if said.words is not None and not same_words(found, said.words):
        raise ValueError(
            f"[{said.start}, {said.end}] of the caption is {found[:60]!r}, the file says "
            f"{said.words[:60]!r}; want characters of the caption, not bytes or UTF-16 units"
        )
    return start, end


def phrase_span(caption: CleanText, said: Said) -> Span:
    """Find a phrase in a caption, at its first place as whole words: start and end character.

    >>> phrase_span(CleanText("A scar, a car."), "car")
    (10, 13)

    Raises:
        ValueError: it is not in the caption.
    """
    if isinstance(said, CharacterSpan):
        return placed(caption, said)
    found = find_phrase(caption.text, said)
    if found is None:
        raise ValueError(f"the phrase {said!r:.80} is not in the caption")
    return found


def rows_as_text(rows: Sequence[dict[str, Any]]) -> str:
    """Rows of the user's table as the text of a file beside the image."""
    regions = ", ".join(row["region"] for row in rows)
    return f'{{"regions": [{regions}], "rows": {json.dumps([row["line"] for row in rows])}}}'


def _mask_frame(mask: Any, size: tuple[int, int], orientation: Callable[[], int]) -> Frame:
    """Return how a mask moves to the image."""
    height, width = mask["size"]
    try:
        return fit_frame((width, height), size, orientation)
    except ValueError as error:
        raise ValueError(f"mask of size {mask['size']!r:.40}: {error}") from error


def _mask(found: Any, frame: Frame, box: XYXY) -> str:
    width, height = map(int, frame.size)
    counts = found["counts"]
    if list(found["size"]) != [height, width]:
        if isinstance(counts, str) and len(counts) > MOST_TEXT:
            raise ValueError(f"a mask of {len(counts)} characters, want at most {MOST_TEXT}")
        across, down = map(int, frame.stated)
        if across * down > _MOST_MASK:
            raise ValueError(f"a mask of {across}x{down} pixels, want at most {_MOST_MASK}")
        mask = decode_rle(read_rle(counts, height=down, width=across), height=down, width=across)
        counts = mask_text(frame.mask(mask), height=height, width=width)
    return checked_mask(counts, box, height=height, width=width)
