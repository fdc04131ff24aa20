"""What to tell somebody whose folder has no image that glit can read."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

import pyarrow as pa

from glit.data.bounded_parquet import BoundedParquet
from glit.errors import cut
from glit.images.formats import IMAGE_SUFFIXES, suffix_of
from glit.inputs.source import Source
from glit.inputs.table import IMAGE_NAMES, is_numbers, is_text

_FILES = 1000
_ENCODE = "encode them as PNG or JPEG, one encoded image a row in a column 'image'"
_TO_PARQUET = "write it as Parquet, one encoded image a row in a column 'image'"


def no_images(source: Source, images: str) -> str:
    """One line: what stands there instead of images, and how glit could read it.

    Args:
        source: The place, looked at if it is on this machine.
        images: What the user called it.
    """
    instead = "" if "://" in source.root else _instead(Path(source.root))
    return f"{images}: no images found; " + (
        instead
        or "want JPEG, PNG, WebP, TIFF, BMP, GIF or AVIF files in the folder or below it, or in "
        ".tar, .zip or .parquet files"
    )


def _instead(root: Path) -> str:
    walk = ((Path(folder) / name) for folder, _, names in os.walk(root) for name in sorted(names))
    for path in islice(walk, _FILES):
        name = path.relative_to(root)
        if path.suffix == ".arrow":
            return (
                f"{name} is of save_to_disk; {_TO_PARQUET}: "
                "datasets.load_from_disk(FOLDER).to_parquet('images.parquet')"
            )
        if path.suffix == ".lance":
            return f"{name} is of a Lance dataset; {_TO_PARQUET}"
        if path.suffix == ".parquet" and (told := _no_bytes(path)):
            return f"{name}: {told}"
    return ""


def _no_bytes(path: Path) -> str:
    """Of a Parquet file whose pictures are texts or lists of numbers: what they are, and what to
    do; or nothing."""
    try:
        with BoundedParquet(path) as file:
            schema = file.schema_arrow
            numbers = next((name for name in IMAGE_NAMES if is_numbers(schema, name)), "")
            if numbers and file.metadata.num_rows:
                return f"the column {numbers!r} holds lists of numbers; {_ENCODE}"
            column = next((name for name in IMAGE_NAMES if is_text(schema, name)), "")
            if not column or not file.metadata.num_rows:
                return ""
            batch = next(file.iter_batches(1, columns=[column]))
    except (OSError, ValueError, pa.ArrowException):
        return ""
    first = str(batch.column(0)[0].as_py() or "")
    texts = f"the column {column!r} holds texts ({cut(first, 40)})"
    if first.startswith(("http://", "https://")):
        return f"{texts}; download the images, for instance with img2dataset"
    if suffix_of(first) in IMAGE_SUFFIXES:
        return f"{texts}; give the folder of these images, and this file as --captions"
    return f"{texts}; decode them to bytes, one encoded image a row in a column 'image'"
