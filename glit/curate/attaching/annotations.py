"""Write what tells a dataset's pictures apart when it is published without them.

``pictures.parquet`` has a row a sample: the hash of its pixels and, unless the publisher leaves it
out, a thumbnail. The hash of its file is its ``sample_id``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from glit.curate.derive import change_rows, finish
from glit.data.parquet import PINNED
from glit.data.records import Drop
from glit.data.schema import PICTURES, PICTURES_SCHEMA
from glit.dataset.columns import RowGroup
from glit.dataset.manifest import describe_file
from glit.errors import InputError
from glit.images import decode
from glit.runtime.cores import usable_cores
from glit.runtime.prefetch import map_ahead
from glit.stages.pack import Pack
from glit.storage.store import Store

if TYPE_CHECKING:
    from glit.dataset.reader import Dataset
    from glit.exporters import Report
    from glit.images import Pixels

SIDE = 320
"""Longest side, in pixels, of thumbnails, and of what is compared with them."""
_QUALITY = 80
"""WebP quality of thumbnails."""


def pixels_sha256(pixels: Pixels) -> str:
    """Return the SHA-256 of a picture's upright RGB pixels and their size."""
    digest = hashlib.sha256(np.array(pixels.shape, "<i8").tobytes())
    digest.update(np.ascontiguousarray(pixels).tobytes())
    return digest.hexdigest()


def thumbnail(pixels: Pixels) -> bytes:
    """Return a WebP of a picture, its longest side at most ``SIDE`` pixels."""
    image = Image.fromarray(pixels)
    image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=_QUALITY, method=4)
    return buffer.getvalue()


def export_annotations(
    dataset: Dataset, folder: Path, report: Report, *, thumbnails: bool = True
) -> None:
    """Write the dataset without its pictures, with what tells them apart.

    Args:
        dataset: a finished one, whole.
        folder: where to.
        report: see :func:`glit.exporters.export`.
        thumbnails: False leaves them out: then only unchanged pictures are found again.

    Raises:
        InputError: some samples are left out, or the dataset has a file of that name.
        DatasetError: a file of the dataset is damaged.
    """
    before = dataset.manifest
    if len(dataset) != before.counts.shipped:
        raise InputError("--to annotations: writes whole datasets; use glit select --where first")
    if PICTURES in before.files:
        raise InputError(f"{dataset.path}: has no pictures")
    with (
        ThreadPoolExecutor(usable_cores()) as pool,
        pq.ParquetWriter(folder / PICTURES, PICTURES_SCHEMA, **PINNED) as pictures,
    ):

        def change(group: RowGroup) -> tuple[pa.Table, dict[int, Drop]]:
            prints = map_ahead(
                pool, lambda row: _fingerprint(group.image(row), thumbnails), range(len(group)),
                most=2 * usable_cores(),
            )  # fmt: skip
            ids = group.table["sample_id"].to_pylist()
            rows = [{"sample_id": i, **own} for i, own in zip(ids, prints, strict=True)]
            pictures.write_table(pa.Table.from_pylist(rows, schema=PICTURES_SCHEMA))
            return _without_bytes(group.table), {}

        made = change_rows(dataset, folder, change, report=report)
    # boxes are in the frame that the rows state, so a limit of its sides needs no mention
    pack = {**before.recipe.table(Pack.name), "image_store": "path", "max_side": 0}
    manifest = dataclasses.replace(
        made,
        recipe=made.recipe.with_table(Pack.name, pack),
        files={**made.files, PICTURES: describe_file(folder / PICTURES, len(dataset))},
    )
    finish(
        folder, manifest, name=folder.name.strip(".").removesuffix(".partial"),
        sources=[dataset], certificates=before.certificates,
    )  # fmt: skip
    source = Store(dataset.path)
    if source.exists("README.md"):  # with what a person wrote into it
        (folder / "README.md").write_bytes(source.read("README.md"))


def _fingerprint(data: bytes, thumbnails: bool) -> dict[str, Any]:
    pixels = decode(data)
    return {
        "pixels_sha256": pixels_sha256(pixels),
        "thumbnail": thumbnail(pixels) if thumbnails else None,
    }


def _without_bytes(table: pa.Table) -> pa.Table:
    """The rows with the paths of their images alone."""
    column = table.schema.get_field_index("image")
    field = table.schema.field(column)
    paths = table["image"].combine_chunks().field("path")
    made = pa.StructArray.from_arrays(
        [pa.nulls(len(table), pa.binary()), paths], fields=list(field.type)
    )
    return table.set_column(column, field, made)
