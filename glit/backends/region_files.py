"""Regions of the user, and the sentences and phrases that each of them belongs to.

``NAME.json`` beside ``NAME.jpg`` holds ``{"regions": [{"box": [x0, y0, x1, y1], "label": "cup",
"score": 1.0, "source": "hand", "sentences": ["The cup is white."], "phrases": ["The cup"]}]}``.
Boxes are in pixels of the upright image with exclusive ends, or of another kind of
:data:`BOXES`; everything but the box may be left out. A sentence or phrase may also be
``[start, end)``, characters of the caption. ``"mask"`` is COCO's ``{"size": [height, width],
"counts": ...}``, of the image's size.

The rows of ``--regions FILE`` for an image become the same text, with their numbers in ``rows``.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glit.backends.base import PLAIN_BYTES, Backend
from glit.backends.protocols import MatcherConfig, ProposerConfig
from glit.backends.weights import Resolved
from glit.data.records import Box, Region
from glit.data.rle import checked_mask
from glit.recipes.config import require_value

SUFFIX = ".json"
BOXES = ("box_xyxy", "box_xywh", "box_xyxyn", "box_xywhn")
"""Names of a box that say what its numbers are: two corners, or a corner and the size; pixels, or
with ``n`` shares of width and height."""
SHARES = ("box_xyxyn", "box_xywhn")
_ROUNDING_PX = 0.5
"""How far such a box may leave the image; published ones are rounded."""
Said = str | tuple[int, int]
"""A text, or the characters [start, end) of the caption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionOfFile:
    """A region and the sentences and phrases that the file gives to it."""

    region: Region
    sentences: tuple[Said, ...]
    phrases: tuple[Said, ...] = ()

    def places(self, regions: Sequence[Region]) -> list[int]:
        """Where this region is among those of a table, which holds 32 bits of a number."""
        boxes = np.array([each.box.xyxy for each in regions], dtype=np.float32)
        same = (boxes == np.array(self.region.box.xyxy, dtype=np.float32)).all(axis=1)
        found = np.flatnonzero(same).tolist()
        return [n for n in found if regions[n].label == self.region.label] or found


class RegionFileReader:
    """See :class:`glit.backends.protocols.RegionReader`."""

    def __init__(self, config: ProposerConfig, model: Resolved | None = None) -> None:
        self._config = config

    def read(self, text: str, *, width: int, height: int) -> list[Region]:
        found = [each.region for each in read_region_file(text, width=width, height=height)]
        return [region for region in found if region.score >= self._config.score_threshold]


def read_region_file(text: str, *, width: int, height: int) -> list[RegionOfFile]:
    """The regions of a file, best score first.

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
            found.append(_region(entry, width=width, height=height))
        except (KeyError, TypeError, ValueError) as error:
            name = f"region {number}" if rows is None else f"row {rows[number]}"
            raise ValueError(f"{name}: {error}") from error
    return sorted(found, key=lambda each: -each.region.score)


def _region(entry: Any, *, width: int, height: int) -> RegionOfFile:
    key = next((key for key in ("box", *BOXES) if isinstance(entry, dict) and key in entry), None)
    if key is None:
        raise ValueError(f'found {entry!r:.60}, want an object with a "box"')
    x0, y0, x1, y1 = _corners(key, entry[key], width=width, height=height)
    if not (0 <= x0 < x1 <= width and 0 <= y0 < y1 <= height):
        raise ValueError(f"{key} {entry[key]} is empty or leaves the {width}x{height} image")
    score = entry.get("score", 1.0)
    if not isinstance(score, int | float) or not 0 <= score <= 1:
        raise ValueError(f"score {score!r}, want 0 to 1")
    region = Region(
        box=Box(x0=x0, y0=y0, x1=x1, y1=y1),
        score=float(score),
        label=str(entry.get("label", "")),
        source=str(entry.get("source", "file")),
        mask=_mask(entry["mask"], (x0, y0, x1, y1), width, height) if "mask" in entry else "",
    )
    return RegionOfFile(
        region=region, sentences=_said(entry, "sentences"), phrases=_said(entry, "phrases")
    )


def _corners(key: str, box: Any, *, width: int, height: int) -> list[float]:
    """x0, y0, x1, y1 in pixels."""
    first, second, *size = map(float, box)
    x1, y1 = size
    if "xywh" in key:
        x1, y1 = first + x1, second + y1
    if key in SHARES:
        first, second, x1, y1 = first * width, second * height, x1 * width, y1 * height
    corners = [first, second, x1, y1]
    if key == "box":
        return corners
    limits = (width, height, width, height)
    near = [min(max(edge, 0.0), limit) for edge, limit in zip(corners, limits, strict=True)]
    return [
        within if abs(within - edge) <= _ROUNDING_PX else edge
        for edge, within in zip(corners, near, strict=True)
    ]


def _said(entry: dict[str, Any], key: str) -> tuple[Said, ...]:
    said = entry.get(key, [])
    if isinstance(said, list) and all(isinstance(each, str) or _is_span(each) for each in said):
        return tuple(
            unicodedata.normalize("NFC", each) if isinstance(each, str) else (each[0], each[1])
            for each in said
        )
    raise ValueError(f"{key} {said!r:.60}, want a list of texts")


def _is_span(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(v) is int for v in value)


def phrase_span(caption: str, said: Said) -> tuple[int, int]:
    """Find a phrase in a caption, at its first place as whole words: start and end character.

    >>> phrase_span("A scar, a car.", "car")
    (10, 13)

    Raises:
        ValueError: it is not in the caption.
    """
    if isinstance(said, str):
        found = re.search(rf"(?<!\w){re.escape(said)}(?!\w)", caption) if said.strip() else None
        if found is None:
            raise ValueError(f"the phrase {said!r:.80} is not in the caption")
        return found.span()
    if not 0 <= said[0] < said[1] <= len(caption):
        raise ValueError(f"the phrase {list(said)} is not in the caption's {len(caption)} letters")
    return said


def rows_as_text(rows: Sequence[dict[str, Any]]) -> str:
    """Rows of the user's table as the text of a file beside the image."""
    regions = ", ".join(row["region"] for row in rows)
    return f'{{"regions": [{regions}], "rows": {json.dumps([row["line"] for row in rows])}}}'


def _mask(found: Any, box: tuple[float, float, float, float], width: int, height: int) -> str:
    if list(found["size"]) != [height, width]:
        raise ValueError(f"mask of size {found['size']}, the image has {[height, width]}")
    return checked_mask(found["counts"], box, height=height, width=width)


def _check_matcher(config: MatcherConfig, model: Resolved | None) -> None:
    """Refuse options of [score] that want a model."""
    wanted = {"phrases": False, "crop": "tight"}
    for key, plain in wanted.items():
        require_value(
            getattr(config, key, plain) == plain,
            f"[score] {key}: score.backend = {getattr(config, 'backend', 'file')!r} compares "
            "nothing; leave it out",
        )


_FILE: dict[str, Any] = {
    "reads": "file",
    "beside": SUFFIX,
    "needs_model": False,
    "process_bytes": PLAIN_BYTES,
}
_GIVEN = {**_FILE, "beside": "", "brings": "regions"}
PROPOSER = Backend(make=RegionFileReader, keeps_masks=True, **_FILE)
MATCHER = Backend(make=lambda *_: None, check=_check_matcher, **_FILE)
GROUNDER = Backend(make=lambda *_: None, **_FILE)
PROVIDED_PROPOSER = Backend(make=RegionFileReader, keeps_masks=True, **_GIVEN)
PROVIDED_MATCHER = Backend(make=lambda *_: None, check=_check_matcher, **_GIVEN)
PROVIDED_GROUNDER = Backend(make=lambda *_: None, **_GIVEN)
