"""Turned shapes and crowds: what an import takes of them, --regions takes too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from building import json_lines, png

from glit.inputs.importers import import_captions
from glit.inputs.published import FORMATS
from glit.inputs.published.user_regions import read_regions
from glit.inspection.sources import open_source

UPRIGHT, TURNED = (30, 50, 130, 70), (70, 10, 90, 110)


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "p.png").write_bytes(png(size=(160, 120)))
    return tmp_path


def coco(*annotations: dict, **values) -> str:
    each = {"image_id": 1, "category_id": 1, "bbox": [30, 50, 100, 20], "iscrowd": 0}
    return json.dumps(
        {
            "images": [{"id": 1, "width": 160, "height": 120, "file_name": "p.png"}],
            "categories": [{"id": 1, "name": "cat"}],
            "annotations": [{**each, **one} for one in annotations],
            **values,
        }
    )


XML = """<annotation><filename>p.png</filename><size><width>160</width><height>120</height></size>
<object><name>cat</name>{}</object></annotation>"""
VOC = XML.format(
    "<bndbox><xmin>31</xmin><ymin>51</ymin><xmax>130</xmax><ymax>70</ymax></bndbox><attributes>"
    "<attribute><name>rotation</name><value>90.0</value></attribute></attributes>"
)
ROLABELIMG = XML.format(
    "<robndbox><cx>80</cx><cy>60</cy><w>100</w><h>20</h><angle>1.5707963267948966</angle></robndbox>"
)
CVAT = """<annotations><image name="p.png" width="160" height="120">
<{} rotation="90.0"/></image></annotations>"""
STUDIO = {
    "type": "rectanglelabels", "original_width": 160, "original_height": 120, "image_rotation": 0,
    "value": {"x": 56.25, "y": 100 / 12, "width": 62.5, "height": 100 / 6, "rotation": 90,
              "rectanglelabels": ["cat"]},
}  # fmt: skip
POINTS = [[90, 10], [90, 110], [70, 110], [70, 10]]
LABELME = {
    "imagePath": "p.png", "imageWidth": 160, "imageHeight": 120,
    "shapes": [{"label": "cat", "shape_type": "rotation", "points": POINTS}],
}  # fmt: skip
FILES = {
    "coco": ("coco-instances", "a.json", coco({"attributes": {"rotation": 90.0}})),
    "voc": ("voc", "p.xml", VOC),
    "rolabelimg": ("voc", "p.xml", ROLABELIMG),
    "cvat": ("cvat", "a.xml", CVAT.format('box label="cat" xtl="30" ytl="50" xbr="130" ybr="70"')),
    "cvat-ellipse": (
        "cvat", "a.xml", CVAT.format('ellipse label="cat" cx="80" cy="60" rx="50" ry="10"'),
    ),
    "label-studio": (
        "label-studio",
        "a.json",
        json.dumps([{"data": {"image": "p.png"}, "annotations": [{"result": [STUDIO]}]}]),
    ),
    "labelme": ("labelme", "p.json", json.dumps(LABELME)),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_the_box_around_a_turned_shape_is_taken(folder, name):
    form, file, text = FILES[name]
    (folder / file).write_text(text)
    [image] = FORMATS[form].read(folder / file, folder, None)
    assert not image.fault and not image.left_out
    [(box, row)] = image.rows.items()
    assert tuple(round(edge, 6) for edge in box) == TURNED and row["label"] == "cat"
    assert ("mask" in row) == (name != "cvat-ellipse")


def test_half_a_turn_and_odd_angles(folder):
    (folder / "a.json").write_text(
        coco({"attributes": {"rotation": 180}}, {"bbox": [0, 0, 40, 40], "attributes": {"rotation": 45}},
             {"bbox": [1, 1, 9, 9], "attributes": {"rotation": float("nan")}})
    )  # fmt: skip
    [image] = FORMATS["coco-instances"].read(folder / "a.json", folder, None)
    first, second = image.rows
    assert first == UPRIGHT
    assert second == pytest.approx((20 - 800**0.5, 20 - 800**0.5, 20 + 800**0.5, 20 + 800**0.5))
    assert image.left_out == ["annotation 3: a box or score holds nan, want finite numbers"]


ANNOTATIONS = [
    {"iscrowd": 1},
    {"category_id": 7},
    {"bbox": [1, 2, 30, 40]},
    {"attributes": {"rotation": 90}},
    {"bbox": [150, 5, 100, 20]},
    {"bbox": [170, 5, 100, 20]},
    {"bbox": [1, 2, 3]},
]


def test_coco_has_one_reader(folder):
    """What ``--regions`` takes, ``glit import`` and ``glit audit`` take too."""
    file = folder / "a.json"
    file.write_text(coco(*ANNOTATIONS))
    boxes = [[1, 2, 31, 42], [70, 10, 90, 110], [150, 5, 160, 25]]
    with pytest.warns(UserWarning, match=r"a.json: 4 entries are left out: annotation 1: a crowd"):
        rows = [json.loads(region) for _, region, _ in read_regions(file, str(folder))]
    assert [row["box_xyxy"] for row in rows] == boxes
    assert "mask" in rows[1]
    found = import_captions("coco-instances", file, folder / "o.jsonl", images=folder)
    assert [row["box_xyxy"] for row in json_lines(folder / "o.regions.jsonl")] == boxes
    assert found.empty == 1 and len(found.refused) == 3
    audited = open_source(str(file), form=None, images=str(folder), split=None)
    assert audited.format == "coco-instances"
    [item] = audited.items()
    assert len(item.boxes) == 4 and len(item.faults) == 3


@pytest.mark.parametrize(
    ("annotations", "taken"),
    [
        ([{"iscrowd": 1}, {"iscrowd": 1}], 2),
        ([{"iscrowd": 1, "attributes": {"occluded": False}}, {"bbox": [1, 2, 30, 40]}], 2),
        ([{"iscrowd": 1}, {"bbox": [1, 2, 30, 40]}], 1),
    ],
    ids=["all", "CVAT", "one"],
)
def test_iscrowd_of_every_mask_is_of_no_crowd(folder, annotations, taken):
    (folder / "a.json").write_text(coco(*annotations))
    [image] = FORMATS["coco-instances"].read(folder / "a.json", folder, None)
    assert len(image.left_out) == len(annotations) - taken
    assert image.rows


def test_boxes_without_any_category(folder):
    values = json.loads(coco({}))
    del values["categories"], values["annotations"][0]["category_id"]
    (folder / "a.json").write_text(json.dumps(values))
    [(_, region, _)] = read_regions(folder / "a.json", str(folder))
    assert "label" not in json.loads(region)
