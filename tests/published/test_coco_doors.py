"""A file in COCO's layout says the same to whoever reads it: an import, a build, a benchmark."""

from __future__ import annotations

import json
import pickle
import warnings

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from building import png

import glit
from glit.errors import InputError
from glit.evaluation.readers.boxes import class_boxes, expressions
from glit.evaluation.readers.questions import read_questions
from glit.inputs.importers import import_captions
from glit.inputs.published import FORMATS
from glit.inputs.published.user_regions import read_regions
from glit.inputs.user_captions import read_captions

IMAGES = [{"id": n, "file_name": f"{n}.png", "width": 100, "height": 100} for n in (1, 2)]
BOX = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 10, 40, 20]}
TURNED = {**BOX, "id": 2, "attributes": {"rotation": 90.0}}
CROWD = {**BOX, "id": 3, "image_id": 2, "iscrowd": 1, "bbox": [0, 0, 90, 90]}
PLAIN, UPRIGHT = (10, 10, 50, 30), (20, 0, 40, 40)


@pytest.fixture
def write(tmp_path):
    for number in (1, 2):
        (tmp_path / f"{number}.png").write_bytes(png(size=(100, 100), seed=number))

    def written(*annotations, images=IMAGES, **more):
        categories = [{"id": 1, "name": "cup"}, {"id": 2, "name": "cat"}]
        values = {"images": images, "annotations": annotations, "categories": categories, **more}
        file = tmp_path / "instances.json"
        file.write_text(json.dumps(values))
        return file

    return written


def by_import(file):
    images = list(FORMATS["coco-instances"].read(file, file.parent, None))
    return {tuple(box) for image in images for box in image.rows}


def by_mdetr(file):
    images = list(FORMATS["mdetr"].read(file, file.parent, None))
    return {tuple(box) for image in images for box in image.rows}


def by_regions(file):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        regions = [json.loads(text) for _, text, _ in read_regions(file, str(file.parent))]
    return {tuple(region["box_xyxy"]) for region in regions}


def by_classes(file):
    return {box for _, box in class_boxes(file, images=None).parts}


def by_questions(file):
    return {q.parts[0][1] for q in read_questions("fg-ovd", file, images=file.parent)}


def by_expressions(file):
    refs = [{"ref_id": n, "ann_id": n, "image_id": 1, "split": "val", "sentences": [{"sent": "a"}]}
            for n in (1, 2)]  # fmt: skip
    (file.parent / "refs(unc).p").write_bytes(pickle.dumps(refs))
    found = expressions(file.parent, images=None, split=None)
    return {box for question in found for _, box in question.parts}


BOXES = [by_import, by_mdetr, by_regions, by_classes, by_questions, by_expressions]
NEGATIVES = {"neg_category_ids": [2, 2]}
FURTHER = {"tokens_positive": [[0, 5]], **NEGATIVES}


@pytest.mark.parametrize("read", BOXES)
def test_boxes_are_the_same(write, read):
    images = [{**image, "caption": "A cup"} for image in IMAGES]
    turned, plain = {**TURNED, **FURTHER}, {**BOX, **FURTHER}
    assert read(write(plain, turned, images=images)) == {PLAIN, UPRIGHT}


@pytest.mark.parametrize("read", [by_import, by_mdetr, by_regions, by_classes])
def test_a_crowd_is_no_box(write, read):
    images = [{**image, "caption": "A cup"} for image in IMAGES]
    assert read(write({**BOX, **FURTHER}, {**CROWD, **FURTHER}, images=images)) == {PLAIN}


@pytest.mark.parametrize("read", [by_classes, by_questions, by_expressions])
@pytest.mark.parametrize(
    ("images", "annotation", "message"),
    [
        ([IMAGES[0], {**IMAGES[1], "id": 1}], BOX, "2 images have the id 1"),
        ([IMAGES[0], {"file_name": "2.png"}], BOX, "no id"),
        (IMAGES, {**BOX, "image_id": 9}, "no image has the id 9"),
        (IMAGES, {**BOX, "bbox": [10, 10, -4, 20]}, "empty or not finite"),
    ],
)
def test_a_benchmark_is_whole_or_refused(write, read, images, annotation, message):
    file = write({**annotation, **NEGATIVES}, {**TURNED, **NEGATIVES}, images=images)
    with pytest.raises(InputError, match=message):
        read(file)


@pytest.mark.parametrize("read", [by_import, by_mdetr, by_regions])
def test_an_annotation_that_is_none_is_left_out_alone(write, read):
    images = [{**image, "caption": "A cup"} for image in IMAGES]
    assert read(write(None, {**BOX, **FURTHER}, images=images)) == {PLAIN}


@pytest.mark.parametrize(
    ("images", "image_id", "message"),
    [
        ([IMAGES[0], {**IMAGES[1], "id": 1}], 1, "2 images have the id 1"),
        (IMAGES, 9, "no image has the id 9"),
    ],
)
def test_captions_of_nobody_knows_whom(write, images, image_id, message):
    file = write({"id": 1, "image_id": image_id, "caption": "A cup."}, images=images)
    with pytest.raises(InputError, match=message):
        list(read_captions(file, str(file.parent)))


UNITS = {
    "two corners": [[20, 20, 90, 90], [30, 10, 95, 60], [5, 40, 99, 99], [1, 1, 99, 60]],
    "thousandths": [[100, 100, 900, 900], [300, 10, 400, 600], [5, 400, 990, 590], [1, 1, 900, 9]],
    "shares": [[0.1, 0.1, 0.5, 0.5], [0.2, 0.2, 0.5, 0.5], [0.1, 0.3, 0.2, 0.4], [0, 0, 1, 0.5]],
}


@pytest.mark.parametrize("unit", UNITS)
def test_boxes_in_another_unit_stop_an_import_and_a_build_and_are_a_fault(write, unit, tmp_path):
    file = write(
        *({**BOX, "id": n, "image_id": n % 2 + 1, "bbox": b} for n, b in enumerate(UNITS[unit]))
    )
    with pytest.raises(InputError, match=unit):
        import_captions("coco-instances", file, tmp_path / "o.jsonl", images=tmp_path)
    with pytest.raises(InputError, match=unit):
        list(read_regions(file, str(tmp_path)))
    code = "box-corners" if unit == "two corners" else "box-units"
    found = glit.audit(file, format="coco-instances", images=tmp_path)
    assert code in {each.code for each in found.findings}


def test_boxes_of_one_image_each_in_thousandths_are_a_fault(write, tmp_path):
    images = [{**IMAGES[0], "id": n, "file_name": f"{n}.png"} for n in range(4)]
    for number in range(4):
        (tmp_path / f"{number}.png").write_bytes(png(size=(100, 100), seed=number))
    boxes = UNITS["thousandths"]
    file = write(
        *({**BOX, "id": n, "image_id": n, "bbox": b} for n, b in enumerate(boxes)), images=images
    )
    found = glit.audit(file, format="coco-instances", images=tmp_path)
    assert "box-units" in {each.code for each in found.findings}


@pytest.mark.parametrize("factor", [40, 1000])
def test_shares_that_are_none_stop_an_import(tmp_path, factor):
    rows = []
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(png(seed=number))
        box = [each * factor for each in (0.1, 0.2, 0.5, 0.6)]
        rows.append({"file_name": f"{number}.png", "key": str(number), "caption": "A red cup.",
                     "noun_chunks": [[2, 9, *box, 0.9]], "ref_exps": []})  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "g.parquet")
    with pytest.raises(InputError, match="3 of 3 boxes, .* are no shares of the picture"):
        import_captions("grit", tmp_path / "g.parquet", tmp_path / "o.jsonl", images=tmp_path)
