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

from glit.curate.rewrite import finish
from glit.data.parquet import PINNED
from glit.data.schema import PICTURES, PICTURES_SCHEMA
from glit.dataset.manifest import describe_data_file, describe_file
from glit.dataset.mini_models import dataset_caution
from glit.errors import InputError
from glit.images import decode
from glit.runtime.cores import usable_cores
from glit.runtime.prefetch import map_ahead
from glit.stages.pack import Pack, writer_options
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
    (folder / "data").mkdir()
    files = {}
    with (
        ThreadPoolExecutor(usable_cores()) as pool,
        pq.ParquetWriter(folder / PICTURES, PICTURES_SCHEMA, **PINNED) as pictures,
    ):
        for name in dataset.files:
            number, schema = 0, dataset.schema
            with pq.ParquetWriter(folder / name, schema, **writer_options(schema)) as writer:
                for index, place in enumerate(dataset.places):
                    if place.path != name:
                        continue
                    group = dataset.row_group(index)
                    told = map_ahead(
                        pool, lambda row, of=group: _told(of.image(row), thumbnails),
                        range(len(group)), most=2 * usable_cores(),
                    )  # fmt: skip
                    ids = group.table["sample_id"].to_pylist()
                    rows = [{"sample_id": i, **each} for i, each in zip(ids, told, strict=True)]
                    pictures.write_table(pa.Table.from_pylist(rows, schema=PICTURES_SCHEMA))
                    table = _without_bytes(group.table)
                    writer.write_table(table, row_group_size=max(1, len(table)))
                    number += len(table)
                    report(len(table))
            files[name] = describe_data_file(folder / name, number)
    source = Store(dataset.path)
    for name in before.files.keys() - files.keys():
        (folder / name).write_bytes(source.read(name))
    files[PICTURES] = describe_file(folder / PICTURES, len(dataset))
    # boxes are in the frame that the rows state, so a limit of its sides needs no mention
    pack = {**before.recipe.table(Pack.name), "image_store": "path", "max_side": 0}
    manifest = dataclasses.replace(
        before,
        recipe=before.recipe.with_table(Pack.name, pack),
        files={**before.files, **files},
    )
    finish(
        folder, manifest, name=folder.name.strip(".").removesuffix(".partial"),
        caution=dataset_caution(dataset), certificates=before.certificates,
    )  # fmt: skip
    if source.exists("README.md"):  # with what a person wrote into it
        (folder / "README.md").write_bytes(source.read("README.md"))


def _told(data: bytes, thumbnails: bool) -> dict[str, Any]:
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
