"""A folder without an image that glit reads: the message tells what stands there instead."""

from __future__ import annotations

import base64
import io
import re

import datasets
import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from glit.inputs.no_images import no_images
from glit.inputs.source import find_source


@pytest.fixture(scope="module")
def png() -> bytes:
    written = io.BytesIO()
    Image.new("RGB", (40, 30), (90, 120, 60)).save(written, "PNG")
    return written.getvalue()


def parquet(folder, column, value):
    pq.write_table(pa.table({column: [value], "caption": ["A dog."]}), folder / "a.parquet")


def saved(folder, png, kind):
    rows = datasets.Dataset.from_dict({"image": [png]})
    (rows if kind == "one" else datasets.DatasetDict({"train": rows})).save_to_disk(folder)


WRITERS = {
    "base64": (
        lambda folder, png: parquet(folder, "image", base64.b64encode(png).decode()),
        "a.parquet: the column 'image' holds texts .* decode them to bytes",
    ),
    "data address": (
        lambda folder, png: parquet(
            folder, "img", "data:image/png;base64," + base64.b64encode(png).decode()
        ),
        "'img' holds texts .* decode them to bytes",
    ),
    "paths": (
        lambda folder, png: parquet(folder, "image", "photos/1.JPG"),
        r"holds texts \(photos/1.JPG\); give the folder of these images, and this file as",
    ),
    "addresses": (
        lambda folder, png: parquet(folder, "image", "https://pictures.test/1.jpg"),
        "download the images",
    ),
    "numbers": (
        lambda folder, png: parquet(folder, "image", [[[90, 120, 60]] * 40] * 30),
        "a.parquet: the column 'image' holds lists of numbers; encode them as PNG or JPEG",
    ),
    "numbers of a caption": (lambda folder, png: parquet(folder, "vector", [0.5]), "want JPEG"),
    "saved": (lambda folder, png: saved(folder, png, "one"), "save_to_disk.*to_parquet"),
    "saved splits": (lambda folder, png: saved(folder, png, "splits"), "train/.*save_to_disk"),
    "lance": (
        lambda folder, png: lance.write_dataset(pa.table({"image": [png]}), folder / "rows.lance"),
        "rows.lance.*is of a Lance dataset; write it as Parquet",
    ),
    "nothing": (lambda folder, png: None, "want JPEG"),
    "a table of captions": (lambda folder, png: parquet(folder, "url", "x"), "want JPEG"),
    "a null": (lambda folder, png: parquet(folder, "image", None), "want JPEG"),
    "damaged": (lambda folder, png: (folder / "a.parquet").write_bytes(png), "want JPEG"),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_what_stands_there_instead(tmp_path, png, kind):
    write, message = WRITERS[kind]
    write(tmp_path, png)
    told = no_images(find_source(str(tmp_path)), "photos")
    assert told.startswith("photos: no images found; ") and re.search(message, told)
