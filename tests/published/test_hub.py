"""Parquet with boxes as the library ``datasets`` writes it, audited and imported."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from building import run_build
from PIL import Image

import glit
from glit import api
from glit.dataset.reader import Dataset
from glit.errors import InputError
from glit.inputs.importers import import_captions

SIZE = (200, 150)
BOXES = [[10.0, 12.0, 60.0, 50.0], [120.0, 90.0, 70.0, 50.0], [60.0, 100.0, 50.0, 45.0]]
NAMES = ["cup", "dog"]


def picture(number: int) -> Image.Image:
    return Image.fromarray(
        np.random.default_rng(number).integers(0, 255, (*SIZE[::-1], 3)).astype(np.uint8)
    )


def write(file: Path, boxes: list[list[list[float]]], *, layout: str = "lists", **columns) -> Path:
    """A file of rows with these boxes, as ``Dataset.to_parquet`` writes it."""
    from datasets import ClassLabel, Features, Value
    from datasets import Dataset as HubDataset
    from datasets import Image as ImageFeature
    from datasets import List as ListFeature

    number, label = Value("float64"), ClassLabel(names=NAMES)
    objects = [[{"bbox": b, "category": n % 2} for n, b in enumerate(some)] for some in boxes]
    kind = ListFeature({"bbox": ListFeature(number, length=4), "category": label})
    if layout == "lists":
        kind = {"bbox": ListFeature(ListFeature(number)), "categories": ListFeature(label)}
        objects = [
            {"bbox": [e["bbox"] for e in o], "categories": [e["category"] for e in o]}
            for o in objects
        ]
    features = {"image": ImageFeature(), "objects": kind}
    features |= {name: Value("string") for name in columns}
    rows = {"image": [picture(n) for n in range(len(boxes))], "objects": objects, **columns}
    HubDataset.from_dict(rows, features=Features(features)).to_parquet(file)
    return file


def found(file: Path, **options) -> dict[str, int]:
    report = api.audit(file, **options)
    assert report.format == options.get("format", "hf")
    return {each.code: each.at_fault for each in report.findings}


@pytest.mark.parametrize("layout", ["lists", "structs"])
def test_boxes_and_labels(tmp_path, layout):
    captions = [f"A cup and a dog on table number {n}, seen from above." for n in range(3)]
    file = write(
        tmp_path / "train-00000-of-00001.parquet", [BOXES] * 3, layout=layout, caption=captions
    )
    assert found(file) == {} == found(tmp_path)
    done = import_captions("hf", tmp_path, tmp_path / "out.jsonl", images=None, split="train")
    assert (done.captions, done.regions, done.refused) == (3, 9, ())
    rows = [json.loads(e) for e in (tmp_path / "out.regions.jsonl").read_text().splitlines()]
    assert [row["label"] for row in rows[:3]] == ["cup", "dog", "cup"]
    assert rows[0]["box_xyxy"] == [10, 12, 70, 62]
    run_build(
        tmp_path, tmp_path / "dataset", recipe="provided", captions=tmp_path / "out.jsonl",
        regions=tmp_path / "out.regions.jsonl",
    )  # fmt: skip
    built = {row.caption.text: row for row in Dataset(str(tmp_path / "dataset"))}
    assert built.keys() == {*captions}
    assert {r.box.xyxy for r in built[captions[0]].regions} >= {(10, 12, 70, 62)}


def test_a_file_without_captions_gives_boxes_alone(tmp_path):
    file = write(tmp_path / "a.parquet", [BOXES, BOXES])
    done = import_captions("hf", file, tmp_path / "out.jsonl", images=None)
    assert (done.captions, done.boxed, done.regions) == (0, 2, 6)
    assert not (tmp_path / "out.jsonl").exists()


def corners(box: list[float]) -> list[float]:
    x, y, width, height = box
    return [x, y, x + width, y + height]


def test_two_corners_are_not_taken_for_a_corner_and_a_size(tmp_path):
    """Three boxes an image show it by themselves; of one box an image the whole file does."""
    file = write(tmp_path / "a.parquet", [[corners(b) for b in BOXES]] * 2)
    assert found(file) == {"box-corners": 2}
    file = write(tmp_path / "b.parquet", [[corners(b)] for b in BOXES * 3])
    assert found(file) == {"box-outside": 6, "box-corners": 1}
    with pytest.raises(InputError, match="6 of 9 boxes leave .* --format hf-xyxy"):
        import_captions("hf", file, tmp_path / "out.jsonl", images=None)
    assert not (tmp_path / "out.regions.jsonl").exists()
    assert found(file, format="hf-xyxy") == {}
    assert import_captions("hf-xyxy", file, tmp_path / "out.jsonl", images=None).regions == 9


def test_shares_and_single_boxes_that_leave(tmp_path):
    sides = (*SIZE, *SIZE)
    shares = [[edge / side for edge, side in zip(b, sides, strict=True)] for b in BOXES]
    assert found(write(tmp_path / "a.parquet", [shares, [shares[0]]])) == {"box-units": 2}
    boxes = [*([b] for b in BOXES), [[150.0, 20.0, 90.0, 30.0]]]
    assert found(write(tmp_path / "b.parquet", boxes)) == {"box-outside": 1}


def test_rows_that_cannot_be_right(tmp_path):
    file = write(tmp_path / "a.parquet", [BOXES, [[1.0, 2.0, 3.0]], BOXES])
    table = pq.read_table(file).to_pylist()
    table[2]["image"]["bytes"] = b"no picture"
    schema = pq.read_schema(file)
    pq.write_table(pa.Table.from_pylist(table, schema=schema), file)
    assert found(file) == {"unreadable": 1, "picture-damaged": 1}


def test_categories_that_are_none_and_pictures_that_are_elsewhere(tmp_path):
    file = write(tmp_path / "a.parquet", [BOXES, BOXES, BOXES])
    table = pq.read_table(file)
    rows = table.to_pylist()
    rows[0]["objects"]["categories"] = [-2, 2, -1]
    rows[1]["objects"]["categories"].pop()
    rows[2]["image"] = {"bytes": None, "path": "2.png"}
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)
    done = import_captions("hf", file, tmp_path / "out.jsonl", images=None)
    assert done.regions == 1 and done.missing == (f"{file}::000000002",)
    assert [each.split(": ", 1)[1] for each in done.refused] == [
        "box 1: category -2, want a number from 0 to 1",
        "box 2: category 2, want a number from 0 to 1",
        "3 boxes, 2 categories",
    ]


def test_pictures_beside_the_file(tmp_path):
    file = write(tmp_path / "a.parquet", [BOXES])
    table = pq.read_table(file)
    rows = table.to_pylist()
    rows[0]["image"] = {"bytes": None, "path": "0.png"}
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)
    (tmp_path / "images").mkdir()
    picture(0).save(tmp_path / "images" / "0.png")
    assert found(file, images=tmp_path / "images") == {}
    done = import_captions("hf", file, tmp_path / "out.jsonl", images=tmp_path / "images")
    assert (done.regions, done.missing) == (3, ())


def test_what_is_exported_is_read_back(built_by_mini, tmp_path):
    """Boxes with their categories, and sentences of the pairs."""
    glit.export(built_by_mini, to="hf", output=tmp_path / "hf")
    done = import_captions("hf", tmp_path / "hf", tmp_path / "out.jsonl", images=None)
    rows = list(Dataset(str(built_by_mini)))
    pairs = sum(not pair.global_wins for row in rows for pair in row.pairs)
    lines = (tmp_path / "out.regions.jsonl").read_text().splitlines()
    assert done.captions == len(rows)
    assert sum(len(json.loads(line).get("sentences", ())) for line in lines) == pairs
    assert found(tmp_path / "hf") == {}
