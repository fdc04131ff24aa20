"""Images with captions, phrases and boxes, to plant faults in."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glit.dataset.reader import Dataset


@dataclass(slots=True, kw_only=True)
class Entry:
    """An image with what formats say of it."""

    name: str
    width: int
    height: int
    caption: str
    row: int
    """In the dataset."""
    phrases: list[list[Any]]
    """Start, end and words of each; one for each box."""
    boxes: list[list[float]]
    """xyxy in pixels."""
    mixed: bool = False
    """True if corners are written as corner and size, or the other way round."""
    original: bytes
    """The dataset's encoded picture."""
    picture: bytes | None
    """The encoded picture that is written, changed or not; None for none."""
    tokens: int = 0
    """By how much the token spans are shifted."""
    shares: dict[str, float] = field(default_factory=dict)
    """Sides that boxes are divided by, if they are not the picture's."""


_clean: dict[str, list[Entry]] = {}
"""By the dataset's path."""


def entries_of(dataset: Dataset) -> list[Entry]:
    """The rows of a clean dataset, to be changed; the dataset is read once."""
    if dataset.path not in _clean:
        _clean[dataset.path] = _read(dataset)
    return copy.deepcopy(_clean[dataset.path])


def _read(dataset: Dataset) -> list[Entry]:
    found = []
    for number, row in enumerate(dataset):
        local = {pair.sentence: pair.region for pair in row.pairs}
        pairs = {region: sentence for sentence, region in sorted(local.items())}
        chosen = [(row.sentences[s], row.regions[r].box.xyxy) for r, s in sorted(pairs.items())]
        picture = row.encoded()
        found.append(
            Entry(
                original=picture, picture=picture,
                name=Path(row.source_path).name, width=row.width, height=row.height, row=number,
                caption=row.caption.text, boxes=[list(box) for _, box in chosen],
                phrases=[[s.char_start, s.char_end, s.text] for s, _ in chosen],
            )
        )  # fmt: skip
    return found


def write_pictures(entries: list[Entry], folder: Path) -> None:
    """Write the pictures, those with names that lead out left away."""
    for each in entries:
        place = folder / each.name
        if each.picture is not None and place.resolve().is_relative_to(folder.resolve()):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(each.picture)


def pairs_of(entry: Entry) -> list[tuple[list[float], list[Any] | None]]:
    """Boxes with their phrases."""
    phrases = [*entry.phrases, *([None] * len(entry.boxes))]
    return list(zip(entry.boxes, phrases, strict=False))


def wh(box: list[float], *, plain: bool = False) -> list[float]:
    """A corner and a size; the box itself if it is plain, or holds what is no number."""
    if plain or isinstance(box[0], str):
        return box
    x0, y0, x1, y1 = box
    return [x0, y0, x1 - x0, y1 - y0]


def in_shares(entry: Entry, box: list[float]) -> list[float]:
    """Two corners in shares of width and height."""
    width = entry.shares.get("width", entry.width)
    height = entry.shares.get("height", entry.height)
    return [e / s for e, s in zip(box, (width, height, width, height), strict=True)]


def lines(file: Path, rows: list[dict[str, Any]]) -> Path:
    """Write JSON lines."""
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file
