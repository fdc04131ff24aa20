"""A user's file of regions, read once and streamed into a Parquet table sorted by path.

A row is a region: the image's path, a box, and what is known of it (docs/regions.md). The name
of the box's key says what its numbers are; see :data:`glit.inputs.region_file.BOXES`. ``width``
and ``height`` are those of the picture that the box is in.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from glit.data.frames import checked_size
from glit.data.json_files import load_json
from glit.errors import InputError, closest, cut
from glit.inputs.lookup import UserTable
from glit.inputs.published.corners import CornerCount, UnitCount
from glit.inputs.published.label_exports import coco_images
from glit.inputs.published.region_image import cut_box
from glit.inputs.region_file import BOXES, SHARES
from glit.inputs.user_tables import EMPTY_CELLS, PATH_KEYS, finder, pick, rows_of, sorted_table
from glit.storage.members import is_utf8
from glit.storage.store import Store

_SCHEMA = pa.schema([("path", pa.string()), ("region", pa.string()), ("line", pa.int64())])
_NAMES = (
    "box_xyxy, box_xywh or box_cxcywh (pixels), box_xyxyn, box_xywhn or box_cxcywhn (shares of "
    "width and height)"
)
_SIZE = ("width", "height")
"""Keys for the size of the picture that the box is in."""
_NUMBERS = ("score", *_SIZE)
_NAME_CHARS = 1000
"""Most characters of a label or a source, which every region's row repeats."""
_OTHERS = ("label", "score", "source", "sentences", "phrases", "mask", *_SIZE)
_LISTS = ("sentences", "phrases")
_LARGEST_SHARE = 1.5
"""Above it, a number cannot be meant as a share of the image."""


_NOT_COCO = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""Errors that reading other JSON raises."""
_MOST_NAMED = 3


def prepare_regions(regions: str, *, image_root: str, work: Store) -> UserTable:
    """Read a file of regions into a sorted table in ``work``; paths are as for captions.

    Raises:
        InputError: the file is missing, of an unknown kind, or a row is not understood.
    """
    return sorted_table(
        UserTable, regions, "regions", _SCHEMA, read_regions, image_root=image_root, work=work
    )


def read_regions(file: Path, image_root: str, *, where: str = "") -> Iterator[tuple[str, str, int]]:
    """Path relative to the image root, region as JSON, and row number of every row.

    Raises:
        InputError: see :func:`prepare_regions`.
    """
    relative = finder(file, image_root, where)
    rows = _coco(file) if file.suffix.lower() == ".json" and file.is_file() else rows_of(file, None)
    for number, row in rows:
        path = pick(row, PATH_KEYS, file, number)
        region = json.dumps(_region(row, file, number), ensure_ascii=False)
        if not is_utf8(region):
            raise InputError(f"{file}: row {number} holds half a character (a lone surrogate)")
        if is_utf8(path):  # no image of another name goes in
            yield relative(path), region, number


def _region(row: dict[str, Any], file: Path, number: int) -> dict[str, Any]:
    """Return the values of a row's region, without empty ones."""
    at = f"{file}: row {number}"
    known = (*BOXES, *_OTHERS, *PATH_KEYS)
    for key in row:
        if key in ("box", "bbox"):
            raise InputError(
                f"{at} has {key!r}, which does not say how it counts; name it {_NAMES}"
            )
        if key not in known:
            raise InputError(f"{at} has the key {key!r}; {closest(str(key), known)}")
    found = {
        key: _plain(key, value, at)
        for key, value in row.items()
        if key not in PATH_KEYS and not _is_empty(value)
    }
    boxes = [key for key in BOXES if key in found]
    if len(boxes) != 1:
        raise InputError(f"{at} has {len(boxes)} boxes; want one of {_NAMES}")
    box = found[boxes[0]]
    if not (isinstance(box, list) and len(box) == 4 and all(map(_is_number, box))):
        raise InputError(f"{at} has {boxes[0]} = {str(box)[:60]}, want four numbers")
    for key in ("label", "source"):
        if isinstance(name := found.get(key), str) and len(name) > _NAME_CHARS:
            raise InputError(
                f"{at} has a {key} of {len(name)} characters; want {_NAME_CHARS} at most"
            )
    if len({*_SIZE} & found.keys()) == 1:
        raise InputError(f"{at} has one of width and height; want both, or none of them")
    if boxes[0] in SHARES and max(box) > _LARGEST_SHARE:
        raise InputError(
            f"{at} has {boxes[0]} = {box}, want shares between 0 and 1; for pixels the name is "
            f"{boxes[0].removesuffix('n')}"
        )
    return found


def _plain(key: str, value: Any, at: str) -> Any:
    """A value as JSON has it; a cell of a CSV file holds text."""
    if not isinstance(value, str) or key in ("label", "source"):
        return value
    try:
        if value.lstrip().startswith(("[", "{")):
            return json.loads(value)
        if key in _LISTS:
            return [value]
        numbers = [float(each) for each in re.split(r"[\s,;]+", value.strip())]
        return numbers[0] if key in _NUMBERS and len(numbers) == 1 else numbers
    except ValueError as error:
        raise InputError(f"{at} has {key} = {value[:60]!r}, which cannot be read") from error


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.strip() in {"", *EMPTY_CELLS})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _phrases(image: dict[str, Any], annotation: dict[str, Any]) -> list[list[Any]]:
    """Spans with the words that they have in the caption of the same file, which need not be that
    of the build."""
    caption = image.get("caption")
    spans = [[first, last] for first, last in annotation.get("tokens_positive") or ()]
    if not isinstance(caption, str):
        return spans
    return [[first, last, caption[first:last]] for first, last in spans]


def _coco(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The boxes of a file in COCO's layout, as an import takes them, numbered through; MDETR's
    ``tokens_positive`` are phrases. A warning says what is left out."""
    left_out: list[str] = []
    number, corners, units = 0, CornerCount(), UnitCount()
    try:
        for image, name in coco_images(load_json(file), _phrases):
            left_out += [image.fault] if image.fault else image.left_out
            size = () if image.stated is None else checked_size(image.stated)
            if size and not image.fault:
                boxes = [given[:4] for given in image.rows]
                corners.add(boxes, size)
                units.add(boxes, size, xywh=True)
            for given, row in image.rows.items() if not image.fault else ():
                box = cut_box(given[:4], size or (math.inf, math.inf))
                if box is None:
                    left_out.append(f"{image.where}: a box of which nothing is inside its picture")
                    continue
                number += 1
                stated = dict(zip(_SIZE, size, strict=False))
                yield number, {"path": name, "box_xyxy": list(box), **row, **stated}
    except _NOT_COCO as error:
        raise InputError(
            f"{file}: not COCO's JSON with images, annotations and categories "
            f"({type(error).__name__}: {cut(str(error))}); other regions go in .jsonl, .csv or "
            ".parquet"
        ) from error
    if fault := corners.fault or units.fault:
        raise InputError(f"{file}: {fault}; COCO's bbox is a corner and a size in pixels")
    if left_out and not number:
        raise InputError(f"{file}: none of {len(left_out)} entries can be right; {left_out[0]}")
    if left_out:
        some = "; ".join(left_out[:_MOST_NAMED]) + ("; …" if len(left_out) > _MOST_NAMED else "")
        warnings.warn(f"{file.name}: {len(left_out)} entries are left out: {some}", stacklevel=2)
