"""Regions from a file of the user, and the sentences that each of them belongs to.

``NAME.json`` beside ``NAME.jpg`` holds ``{"regions": [{"box": [x0, y0, x1, y1], "label": "cup",
"score": 1.0, "source": "hand", "sentences": ["The cup is white."]}]}``. Boxes are in pixels of the
upright image with exclusive ends; everything but the box may be left out. ``"mask"`` is COCO's
``{"size": [height, width], "counts": ...}``, of the image's size.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from glit.backends.base import PLAIN_BYTES, Backend
from glit.backends.protocols import MatcherConfig, ProposerConfig
from glit.backends.weights import Resolved
from glit.data.records import Box, Region
from glit.data.rle import checked_mask
from glit.recipes.config import require_value

SUFFIX = ".json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionOfFile:
    """A region and the sentences that the file gives to it."""

    region: Region
    sentences: tuple[str, ...]


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
        entries = json.loads(text)["regions"]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not valid JSON ({error})") from error
    except (KeyError, TypeError) as error:
        raise ValueError('no list of "regions"') from error
    if not isinstance(entries, list):
        raise ValueError(f'"regions" is {entries!r:.40}, want a list')
    found = []
    for number, entry in enumerate(entries):
        try:
            found.append(_region(entry, width=width, height=height))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"region {number}: {error}") from error
    return sorted(found, key=lambda each: -each.region.score)


def _region(entry: Any, *, width: int, height: int) -> RegionOfFile:
    if not isinstance(entry, dict) or "box" not in entry:
        raise ValueError(f'found {entry!r:.60}, want an object with a "box"')
    x0, y0, x1, y1 = map(float, entry["box"])
    if not (0 <= x0 < x1 <= width and 0 <= y0 < y1 <= height):
        raise ValueError(f"box {entry['box']} is empty or leaves the {width}x{height} image")
    score, sentences = entry.get("score", 1.0), entry.get("sentences", [])
    if not isinstance(score, int | float) or not 0 <= score <= 1:
        raise ValueError(f"score {score!r}, want 0 to 1")
    if not isinstance(sentences, list) or not all(isinstance(s, str) for s in sentences):
        raise ValueError(f"sentences {sentences!r:.60}, want a list of texts")
    region = Region(
        box=Box(x0=x0, y0=y0, x1=x1, y1=y1),
        score=float(score),
        label=str(entry.get("label", "")),
        source=str(entry.get("source", "file")),
        mask=_mask(entry["mask"], (x0, y0, x1, y1), width, height) if "mask" in entry else "",
    )
    return RegionOfFile(region=region, sentences=tuple(sentences))


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
            f"[score] {key}: score.backend = 'file' compares nothing; leave it out",
        )


_FILE: dict[str, Any] = {
    "reads": "file",
    "beside": SUFFIX,
    "needs_model": False,
    "process_bytes": PLAIN_BYTES,
}
PROPOSER = Backend(make=RegionFileReader, keeps_masks=True, **_FILE)
MATCHER = Backend(make=lambda *_: None, check=_check_matcher, **_FILE)
