"""Read Parquet with pictures and boxes, as datasets of the Hugging Face Hub have them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from glit.data.bounded_parquet import BoundedParquet
from glit.data.frames import stated_size, xywh_corners
from glit.inputs.files import ImageFiles
from glit.inputs.published.files import ALL, chosen_parts
from glit.inputs.published.region_image import RegionImage
from glit.inputs.table import member
from glit.storage.members import join

_CAPTIONS = ("caption", "text")
_CATEGORIES = ("category", "categories", "label", "labels", "category_id")
_PART = re.compile(r"(.+?)-\d+(-of-\d+)?\.parquet")
_ROWS = 256


def hub(
    annotations: Path,
    images: Path | None,
    split: str | None,
    *,
    corners: Literal["xywh", "xyxy"] = "xywh",
) -> Iterator[RegionImage]:
    """Parquet of the library ``datasets`` (its guide to object detection), or ``glit export --to
    hf``: a file, or a folder of which those with ``objects`` are read.

    A row has ``image`` (``bytes`` and ``path``), ``objects`` with ``bbox`` and ``category`` or
    ``categories`` (a struct of lists, or a list of structs; a ClassLabel's names are in the file's
    features), and a ``caption`` if there is one. Boxes are in pixels; the file does not say of
    which kind, so ``hf`` takes COCO's x, y, width and height, and ``hf-xyxy`` two corners. Pictures
    are those in the file, called ``FILE.parquet::ROW``; with ``images`` the files of the paths.
    ``--split`` is the beginning of the file names.
    """
    files = sorted(annotations.rglob("*.parquet")) if annotations.is_dir() else [annotations]
    parts = {file: _part(file.name) for file in files}
    chosen = {*parts.values()} if split in (None, ALL) else chosen_parts(split, parts.values())
    for file in files:
        folder, pictures = file.parent, ImageFiles(file.parent)
        with BoundedParquet(file) as table:
            schema = table.schema_arrow
            if parts[file] not in chosen or (annotations.is_dir() and not has_objects(schema)):
                continue
            columns = [*_ROW_COLUMNS, "objects", "pairs", *_CAPTIONS]
            labels, number = _label_names(schema), -1
            for batch in table.iter_batches(_ROWS, columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    image = RegionImage(path=file, where=f"{file.name}, row {number}", shares=False)
                    with image.whole():
                        if images is None:
                            name = join(file.name, member(number))
                            image.path, image.picture = folder / name, partial(pictures.read, name)
                        else:
                            image.path = images / row["image"]["path"]
                        _read_row(image, row, labels, is_xywh=corners == "xywh")
                    yield image


_ROW_COLUMNS = ("image.path", "width", "height")


def has_objects(schema: pa.Schema) -> bool:
    """Return whether a table has boxes in a column ``objects``."""
    index = schema.get_field_index("objects")
    kind = schema.field(index).type if index >= 0 else pa.null()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    return pa.types.is_struct(kind) and kind.get_field_index("bbox") >= 0


def _part(name: str) -> str:
    """The part of a file ``train-00000-of-00002.parquet``."""
    found = _PART.fullmatch(name)
    return found[1] if found else name.removesuffix(".parquet")


def _label_names(schema: pa.Schema) -> Sequence[str]:
    """The names of the categories, if the file's features have them."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        node = features["objects"]
        while not isinstance(node, dict) or not node.keys() & {*_CATEGORIES}:
            node = node["feature"] if isinstance(node, dict) else node[0]
        node = next(node[key] for key in _CATEGORIES if key in node)
        while "names" not in node:
            node = node["feature"] if isinstance(node, dict) else node[0]
        return [str(name) for name in node["names"]]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return ()


def _read_row(
    image: RegionImage, row: dict[str, Any], labels: Sequence[str], *, is_xywh: bool
) -> None:
    image.stated = stated_size(row)
    span = image.say(next((row[key] for key in _CAPTIONS if isinstance(row.get(key), str)), ""))
    said: dict[int, list[Any]] = {}
    for pair in row.get("pairs") or ():
        with image.record("a pair"):
            place = span(pair["char_start"], pair["char_end"])
            said.setdefault(pair["object"], []).append(place)
    for number, (box, category) in enumerate(_objects(row.get("objects"))):
        with image.record(f"box {number + 1}"):
            image.add(
                xywh_corners(box) if is_xywh else box,
                key="sentences",
                label=_label(category, labels),
                spans=said.get(number, ()),
            )


def _objects(found: Any) -> Iterator[tuple[Sequence[float], Any]]:
    """Boxes and categories of a row."""
    if not isinstance(found, dict):
        for each in found or ():
            yield each["bbox"], next((each[key] for key in _CATEGORIES if key in each), None)
        return
    boxes = found["bbox"] or ()
    categories = next((found[key] for key in _CATEGORIES if found.get(key) is not None), None)
    if categories is not None and len(categories) != len(boxes):
        raise ValueError(f"{len(boxes)} boxes, {len(categories)} categories")
    yield from zip(boxes, categories or [None] * len(boxes), strict=True)


def _label(category: Any, names: Sequence[str]) -> Any:
    if category is None or category == -1:  # a ClassLabel that is not known
        return ""
    if not names or not isinstance(category, int):
        return category
    if not 0 <= category < len(names):
        raise ValueError(f"category {category}, want a number from 0 to {len(names) - 1}")
    return names[category]
