"""Boxes of annotation tools become a file that a build takes, at the places where the tools, or
their own readers and writers, have them."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
import supervision
from box_imports import taken, write
from building import json_lines, png, run_build
from PIL import Image
from pycocotools import mask as coco_masks
from rich.console import Console
from typer.testing import CliRunner

from glit.cli.main import app
from glit.data.polygons import segmentation_text
from glit.dataset.reader import Dataset
from glit.dataset.row import masks_of
from glit.errors import InputError
from glit.inputs.importers import import_captions
from glit.runtime.progress import StageProgress

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # pycocotools
SQUARE = [20.0, 10.0, 40.0, 10.0, 40.0, 30.0, 20.0, 30.0]


def by_supervision(folder: Path, names: list[str]) -> supervision.DetectionDataset:
    """Detections at whole pixels on all pictures of a folder."""
    boxes = np.array([[2, 3, 12, 15], [0, 0, 48, 40]], dtype=np.float32)
    found = supervision.Detections(xyxy=boxes, class_id=np.array([1, 0]))
    paths = sorted(map(str, folder.glob("*.png")))
    return supervision.DetectionDataset(names, paths, dict.fromkeys(paths, found))


def test_yolo_as_supervision_writes_it(tmp_path, pictures):
    by_supervision(pictures, ["cat", "dog"]).as_yolo(
        annotations_directory_path=str(tmp_path / "labels"),
        data_yaml_path=str(tmp_path / "data.yaml"),
    )
    for source in (tmp_path, tmp_path / "data.yaml"):
        found, rows = taken("yolo", source)
        assert (found.boxed, found.regions, found.captions, found.refused) == (2, 4, 0, ())
        for each in rows.values():
            pixels = np.array([row["box_xyxyn"] for row in each]) * (48, 40, 48, 40)
            np.testing.assert_allclose(pixels, [[2, 3, 12, 15], [0, 0, 48, 40]], atol=1e-3)
            assert [row["label"] for row in each] == ["dog", "cat"]


def test_yolo_beside_pictures_with_segments_scores_and_damage(tmp_path, pictures):
    write(pictures / "classes.txt", "cat\ndog\n")
    write(
        pictures / "one.txt",
        "1 0.5 0.5 0.5 0.5 0.25\n0 0.1 0.2 0.9 0.2 0.5 0.8\n\n2 0.5 0.5 0.1 0.1\n0 24 20 9 9\n"
        "0 nan 0.5 0.1 0.1\n0 0.5 0.5 0.1\nx 0.5 0.5 0.1 0.1\n1 0.5 0.5 1e308 0.1\n",
    )
    write(pictures / "two.txt", "")
    found, rows = taken("yolo", pictures)
    assert rows == {
        "one.png": [
            {"box_xyxyn": [0.25, 0.25, 0.75, 0.75], "label": "dog", "score": 0.25},
            {"box_xyxyn": [0.1, 0.2, 0.9, 0.8], "label": "cat"},
        ]
    }
    assert found.without == 1
    assert [each.split(": ", 2)[1] for each in found.refused] == [
        f"line {n}" for n in (4, 5, 6, 7, 8, 9)
    ]
    assert found.refused[0] == "one.txt, one.png: line 4: class 2, want a number from 0 to 1"


def test_images_read_are_told_now_and_then_and_a_thousand_missing_ones_named(
    tmp_path, pictures, monkeypatch
):
    names = ["one.png", *(f"gone-{number}.png" for number in range(1005))]
    values = {
        "images": [{"id": number, "file_name": name} for number, name in enumerate(names)],
        "categories": [{"id": 3, "name": "cup"}],
        "annotations": [
            {"id": number, "image_id": number, "category_id": 3, "bbox": [1, 2, 10, 12]}
            for number in range(len(names))
        ],
    }
    source = write(tmp_path / "instances.json", json.dumps(values))
    monkeypatch.setattr("glit.inputs.importers._TOLD_EVERY", 400)
    told = []
    progress = StageProgress(Console(file=io.StringIO()), listeners=[told.append])
    found = import_captions(
        "coco-instances", source, tmp_path / "out.jsonl", images=pictures, progress=progress
    )
    assert [event["text"] for event in told] == ["400 images read", "800 images read"]
    assert (found.boxed, found.num_missing) == (1, 1005)
    assert found.missing == tuple(str(pictures / name) for name in names[1:1001])


def test_yolo_of_poses_and_parts(tmp_path, pictures):
    write(tmp_path / "data.yaml", "names: {0: person}\nkpt_shape: [1, 3]\n")
    for part, name in (("train", "one"), ("val", "two")):
        place = tmp_path / "images" / part / f"{name}.png"
        place.parent.mkdir()
        (pictures / f"{name}.png").rename(place)
        write(tmp_path / "labels" / part / f"{name}.txt", "0 0.5 0.5 1 1 0.3 0.3 2\n")
    _, rows = taken("yolo", tmp_path, split="val")
    assert rows == {"two.png": [{"box_xyxyn": [0, 0, 1, 1], "label": "person"}]}
    with pytest.raises(InputError, match="no part 'test'; known are train, val"):
        taken("yolo", tmp_path, split="test")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("names: [a, [b]]\n", "names: want a list"),
        ("names: {0: a, 2: b}\n", "names: want a list, or numbers from 0"),
        ("a: &a [x, x]\nb: &b [*a, *a]\nnames: &c [*b, *b]\n", "names: want a list"),
        ("names: " + "[" * 1200, "no YAML"),
    ],
)
def test_names_of_a_stranger(tmp_path, pictures, text, message):
    write(tmp_path / "labels" / "one.txt", "0 0.5 0.5 0.1 0.1\n")
    with pytest.raises(InputError, match=message):
        taken("yolo", write(tmp_path / "data.yaml", text))


@pytest.mark.timeout(30)
def test_names_are_plain_text_and_are_not_multiplied(tmp_path, pictures):
    write(tmp_path / "labels" / "one.txt", "0 0.5 0.5 0.1 0.1\n1 0.5 0.5 0.2 0.2\n")
    aliases = "a0: &a0 {k: 1}\n" + "".join(
        f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12)
    )
    text = f"{aliases}names: {{0: no, 1: !!python/object/apply:os.getcwd []}}\n"
    with pytest.raises(InputError, match="names: want a list"):
        taken("yolo", write(tmp_path / "data.yaml", text))
    write(tmp_path / "data.yaml", f"{aliases}names: [no, 2.0]\n")
    _, rows = taken("yolo", tmp_path)
    assert [row["label"] for row in rows["one.png"]] == ["no", "2.0"]


def test_links_to_folders_of_labels_are_told(tmp_path, pictures):
    write(tmp_path / "classes.txt", "cat\n")
    write(tmp_path / "elsewhere" / "one.txt", "0 0.5 0.5 0.1 0.1\n")
    (tmp_path / "labels").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="folders that are links are not followed"):
        taken("yolo", tmp_path)


def test_classes_without_names_and_two_pictures_of_a_name_are_refused(tmp_path, pictures):
    write(tmp_path / "labels" / "one.txt", "0 0.5 0.5 0.1 0.1\n")
    with pytest.raises(InputError, match="the classes have no names"):
        taken("yolo", tmp_path)
    write(tmp_path / "classes.txt", "cat\n")
    (pictures / "one.jpg").write_bytes(png())
    with pytest.raises(InputError, match="two pictures have its name: one.jpg and one.png"):
        taken("yolo", tmp_path)


def test_voc_as_supervision_writes_it(tmp_path, pictures):
    by_supervision(pictures, ["cat", "dog"]).as_pascal_voc(
        annotations_directory_path=str(tmp_path / "Annotations"),
        images_directory_path=str(tmp_path / "JPEGImages"),
    )
    write(tmp_path / "ImageSets" / "Main" / "val.txt", "two\n")
    assert "<xmin>3</xmin>" in (tmp_path / "Annotations" / "one.xml").read_text()
    expected = [
        {"box_xyxy": [2, 3, 12, 15], "label": "dog"},
        {"box_xyxy": [0, 0, 48, 40], "label": "cat"},
    ]
    assert taken("voc", tmp_path)[1] == {"one.png": expected, "two.png": expected}
    assert taken("voc", tmp_path, split="val")[1] == {"two.png": expected}


VOC = """<annotation><folder>x</folder><filename>{name}</filename><size><width>48</width>
<height>40</height></size><object><name>cat</name><part><name>head</name><bndbox><xmin>4</xmin>
<ymin>4</ymin><xmax>5</xmax><ymax>5</ymax></bndbox></part><bndbox><xmin>{x}</xmin><ymin>2</ymin>
<xmax>20</xmax><ymax>20.5</ymax></bndbox></object></annotation>"""


def test_hostile_voc_is_listed_and_the_rest_read(tmp_path, pictures):
    good = VOC.format(name="one.png", x=0)
    entities = "".join(f'<!ENTITY e{n} "&e{n - 1};&e{n - 1};">' for n in range(1, 40))
    bomb = f'<!DOCTYPE a [<!ENTITY e0 "x">{entities}]>{good.replace(">cat<", ">&e39;<")}'
    outside = '<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]>' + good
    texts = {
        "bomb": bomb, "cut": good[:300], "deep": "<annotation>" * 200, "good": good,
        "leads": VOC.format(name="../../secret.png", x=1), "nan": VOC.format(name="two.png", x="nan"),
        "outside": outside, "vast": VOC.format(name="two.png", x="-1e308"),
        "void": "<annotation/>", "zz": VOC.format(name="one.png", x=1),
    }  # fmt: skip
    for name, text in texts.items():
        write(tmp_path / "xml" / f"{name}.xml", text)
    found, rows = taken("voc", tmp_path / "xml", pictures)
    assert rows == {"two.png": [{"box_xyxy": [0, 1, 20, 20.5], "label": "cat"}]}
    assert (found.cut, found.without) == (2, 1)  # counted from 0, which the format does not
    said = {each.split(".xml")[0]: each for each in found.refused}
    assert said.keys() == texts.keys() - {"vast", "leads"}
    assert "declares a document type" in said["bomb"]
    assert "declares a document type" in said["outside"]
    assert "no XML (unclosed token: line" in said["cut"]
    assert "too deep" in said["deep"]
    assert found.missing == (f"{pictures}/secret.png",)  # and looked for nowhere else
    assert "object 1: a box or score holds nan" in said["nan"]
    assert "no <filename>" in said["void"]
    assert (
        "good.xml names the same picture" in said["zz"]
        and "zz.xml names the same picture" in said["good"]
    )


LABELME = {  # as labelme 6.3.1 saves it
    "version": "6.3.1", "flags": {}, "imagePath": "..\\images\\one.png", "imageData": None,
    "imageHeight": 40, "imageWidth": 48,
    "shapes": [
        {"label": label, "points": points, "group_id": None, "description": "",
         "shape_type": kind, "flags": {}, "mask": None}
        for label, kind, points in [
            ("cat", "rectangle", [[30.0, 30.0], [10.5, 5.25]]),
            ("dog", "polygon", [[20.0, 10.0], [40.0, 10.0], [40.0, 30.0], [20.0, 30.0]]),
            ("ball", "circle", [[20.0, 20.0], [23.0, 24.0]]),
            ("edge", "line", [[1.0, 1.0], [5.0, 5.0]]),
            ("dog", "polygon", [[1.0, 1.0], [2.0, 1.0]]),
            ("cat", "rectangle", [[1.0, 1e400], [2.0, 1.0]]),
        ]
    ],
}  # fmt: skip


def test_labelme(tmp_path, pictures):
    write(tmp_path / "labels" / "one.json", json.dumps(LABELME))
    write(tmp_path / "labels" / "deep.json", '{"a":' * 5000)
    write(tmp_path / "labels" / "other.json", "[1]")
    found, rows = taken("labelme", tmp_path / "labels", pictures)
    mask = {"size": [40, 48], "counts": segmentation_text([SQUARE], height=40, width=48)}
    assert rows == {
        "one.png": [
            {"box_xyxy": [10.5, 5.25, 30, 30], "label": "cat"},
            {"box_xyxy": [20, 10, 40, 30], "label": "dog", "mask": mask, "width": 48, "height": 40},
            {"box_xyxy": [15, 15, 25, 25], "label": "ball"},
        ]
    }
    assert (found.masks, found.empty) == (1, 1)  # the polygon of two corners is a line
    assert [each.split(": ", 1)[1][:40] for each in found.refused] == [
        "nested too deep",
        "shape 4: a line, which has no box",
        "a mask: a polygon of 2 corners, want thr",
        "shape 6: a box or score holds inf, want ",
        "list indices must be integers or slices,",
    ]
    with pytest.raises(InputError, match="leads out of .*give --images"):
        taken("labelme", tmp_path / "labels" / "one.json")


def coco(*annotations: dict, **image) -> dict:
    return {
        "images": [{"id": 7, "width": 48, "height": 40, "file_name": "one.png", **image}],
        "categories": [{"id": 3, "name": "cat"}, {"id": 4, "name": "dog"}],
        "annotations": [
            {"id": n, "image_id": 7, "category_id": 3, "bbox": [20, 10, 20, 20], **each}
            for n, each in enumerate(annotations)
        ],
    }


def test_masks_of_coco_are_those_of_its_own_library(tmp_path, pictures):
    triangle = [3.2, 4.1, 30.7, 9.9, 12.3, 35.5]
    want = coco_masks.frPyObjects([SQUARE], 40, 48)[0]
    pixels = coco_masks.decode(want)
    flat = np.flatnonzero(np.diff(np.concatenate(([0], pixels.T.ravel(), [2]))))
    runs = np.diff(np.concatenate(([0], flat))).tolist()
    values = coco(
        {"segmentation": [SQUARE]},
        {"segmentation": {"size": [40, 48], "counts": runs}, "category_id": 4},
        {"segmentation": {"size": [40, 48], "counts": want["counts"].decode()}, "bbox": [19, 10, 21, 20]},
        {"segmentation": [triangle, SQUARE], "bbox": [3.2, 4.1, 36.8, 31.4]},
    )  # fmt: skip
    source = write(tmp_path / "instances.json", json.dumps(values))
    found, rows = taken("coco-instances", source, pictures)
    assert (found.regions, found.masks, found.refused) == (4, 4, ())
    masks = [coco_masks.decode(row["mask"]) for row in rows["one.png"]]
    for mask in masks[:3]:
        np.testing.assert_array_equal(mask, pixels)
    both = coco_masks.merge(coco_masks.frPyObjects([triangle, SQUARE], 40, 48))
    np.testing.assert_array_equal(masks[3], coco_masks.decode(both))
    assert [row["label"] for row in rows["one.png"]] == ["cat", "dog", "cat", "cat"]


def test_damaged_annotations_of_coco_are_listed(tmp_path, pictures):
    values = coco(
        {"iscrowd": 1}, {"bbox": [1e308, 0, 1e308, 1]}, {"bbox": [1, 2, 3]}, {"category_id": 99},
        {"segmentation": [[0, 0, 1e15, 0, 0, 1e15]]}, {"segmentation": [[0, float("nan")] * 3]},
        {"segmentation": {"size": [40, 48], "counts": [2**40]}, "bbox": [1, 1, 2, 2]},
        {"segmentation": {"size": [2, 2], "counts": "04"}, "bbox": [1, 1, 3, 3]},
        {"segmentation": [[1, 1, 3, 1, 3, 3, 1, 3]], "bbox": [20, 20, 9, 9]},
        {"image_id": 8}, {"image_id": [8]},
    )  # fmt: skip
    source = write(tmp_path / "instances.json", json.dumps(values))
    found, rows = taken("coco-instances", source, pictures)
    assert [row["box_xyxy"] for row in rows["one.png"]] == [
        [20, 10, 40, 30], [1, 1, 3, 3], [1, 1, 4, 4], [20, 20, 29, 29],
    ]  # fmt: skip
    assert found.masks == 0
    for part in (
        "annotation 1: a crowd", "annotation 2: a box or score holds inf", "annotation 3: not enough",
        "annotation 4: no category has the id 99", "too far apart", "no finite numbers", "run lengths",
        "a mask of size [2, 2]", "marks another place", "no image has the id 8 (1 annotations)", "None",
    ):  # fmt: skip
        assert any(part in each for each in found.refused), (part, found.refused)


def test_ids_of_coco(tmp_path, pictures):
    """Pandas writes ids as ``1.0``; of two images with one id nobody knows whose the boxes are."""
    values = coco({"image_id": 1.0}, {"image_id": 2.0})
    names = ("one.png", "two.png")
    whole = {"width": 48, "height": 40}
    values["images"] = [
        {"id": n, "file_name": name, **whole} for n, name in zip((1.0, 2.0), names, strict=True)
    ]
    source = tmp_path / "instances.json"
    _, rows = taken("coco-instances", write(source, json.dumps(values)), pictures)
    assert {name: len(found) for name, found in rows.items()} == {"one.png": 1, "two.png": 1}
    values["images"][1]["id"] = 1
    with pytest.raises(InputError, match="2 images have the id 1"):
        taken("coco-instances", write(source, json.dumps(values)), pictures)
    del values["images"][1]["id"], values["annotations"][1]["image_id"]
    found, rows = taken("coco-instances", write(source, json.dumps(values)), pictures)
    assert [*rows] == ["one.png"] and "images, entry 2, two.png: no id" in found.refused
    for categories, fault in (
        ([{"id": 1, "name": None}], "none of 2 entries can be right"),
        ([{"id": 1, "name": "cat"}, {"id": 1, "name": "dog"}], "two categories have the id 1"),
    ):
        values["categories"] = categories
        with pytest.raises(InputError, match=fault):
            taken("coco-instances", write(source, json.dumps(values)), pictures)


def test_a_class_may_be_a_number_and_not_nothing(tmp_path, pictures):
    boxes = [{"bbox": [n, 1, 9, 9], "category": name} for n, name in enumerate((None, 5, "cat"))]
    line = {"filename": "one.png", "detection": {"instances": boxes}}
    line["grounding"] = {"caption": "A cat.", "regions": []}
    found, rows = taken("odvg", write(tmp_path / "a.jsonl", json.dumps(line)), pictures)
    assert [row["label"] for row in rows["one.png"]] == ["5", "cat"]
    assert found.refused == ("line 1, one.png: None is no name of a class",)


@pytest.mark.parametrize("form", ["coco", "mdetr"])
def test_two_images_of_one_id_are_refused(tmp_path, pictures, form):
    images = [{"id": 1, "file_name": name, "caption": "A cat."} for name in ("one.png", "two.png")]
    annotation = {"image_id": 1, "caption": "A cat.", "bbox": [1, 1, 9, 9], "tokens_positive": []}
    text = json.dumps({"images": images, "annotations": [annotation]})
    with pytest.raises(InputError, match="2 images have the id 1"):
        import_captions(
            form, write(tmp_path / "a.json", text), tmp_path / "o.jsonl", images=pictures
        )


@pytest.mark.parametrize("name", ["", "/", ".."])
def test_a_picture_without_a_name(tmp_path, pictures, name):
    values = coco({})
    values["images"][0]["file_name"] = name
    with pytest.raises(InputError, match="is no path of a picture"):
        taken("coco-instances", write(tmp_path / "c.json", json.dumps(values)), pictures)


@pytest.mark.timeout(10)
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(InputError, match="no regular file"):
        import_captions("coco-instances", tmp_path / "pipe.json", tmp_path / "o.jsonl", images=None)


def test_lvis_has_its_names_in_coco_url(tmp_path, pictures):
    (pictures / "val2017").mkdir()
    (pictures / "one.png").rename(pictures / "val2017" / "one.png")
    values = coco({"segmentation": [SQUARE]}, coco_url="http://images.example.org/val2017/one.png")
    del values["images"][0]["file_name"]
    source = write(tmp_path / "lvis.json", json.dumps(values))
    assert list(taken("coco-instances", source, pictures)[1]) == ["one.png"]


CVAT = """<?xml version="1.0" encoding="utf-8"?>
<annotations>
  <version>1.1</version>
  <meta><task><name>train</name><labels><label><name>cat</name></label></labels></task></meta>
  <image id="0" name="one.png" width="48" height="40">
    <box label="dog" occluded="0" outside="0" keyframe="0" xtl="2.00" ytl="3.00" xbr="12.00" ybr="15.00" z_order="0">
    </box>
    <polygon label="cat" occluded="0" outside="0" keyframe="0" points="20.00,10.00;40.00,10.00;40.00,30.00;20.00,30.00" z_order="0">
    </polygon>
    <cuboid label="cat" xtl1="1" ytl1="1"/>
    <mask label="cat" rle="1, 5" left="4" top="5" width="3" height="2"/>
    <polyline label="cat" points="1,1;2,2"/>
    <tag label="indoor"/>
    <mask label="cat" rle="1, 2, 3" left="47" top="5" width="3" height="2"/>
  </image>
  <image id="1" name="../two.png" width="48" height="40"><box label="a" xtl="0" ytl="0" xbr="9" ybr="9"/></image>
</annotations>"""  # as datumaro 1.13 and the documentation of CVAT write it


def test_cvat(tmp_path, pictures):
    found, rows = taken("cvat", write(tmp_path / "annotations.xml", CVAT))
    size = {"width": 48, "height": 40}
    mask = {"size": [40, 48], "counts": segmentation_text([SQUARE], height=40, width=48)}
    first, second, third = rows["one.png"]
    assert first == {"box_xyxy": [2, 3, 12, 15], "label": "dog"}
    assert second == {"box_xyxy": [20, 10, 40, 30], "label": "cat", "mask": mask, **size}
    assert third["box_xyxy"] == [4, 5, 7, 7]
    pixels = coco_masks.decode(third["mask"])
    assert np.argwhere(pixels).tolist() == [[5, 5], [5, 6], [6, 4], [6, 5], [6, 6]]
    assert [each.split(": ", 1)[1] for each in found.refused[:3]] == [
        "shape 3: a cuboid, which has no box",
        "shape 5: a polyline, which has no box",
        "shape 7: a mask of 3x2 pixels at 47, 5, outside its picture",
    ]
    assert len(found.refused) == 3
    assert list(rows) == ["one.png", "two.png"]  # of "../two.png" the part below the folder
    wide = f"<annotations><image name='{'x' * (20 << 20)}'/></annotations>"
    with pytest.raises(InputError, match="a tag of more than 16,777,216 bytes"):
        taken("cvat", write(tmp_path / "wide.xml", wide))
    with pytest.raises(InputError, match="CVAT for images 1.1, not for video"):
        taken("cvat", write(tmp_path / "video.xml", "<annotations><track id='0'/></annotations>"))


FILES = Path(__file__).parents[1] / "files" / "tools"
CAT = ("cat", (20, 10, 40, 30), 400)
WRITTEN = {
    ("cvat", "cvat.xml"): {
        "one.png": [("dog", (2, 3, 12, 15), 0), CAT, ("cat", (4, 5, 7, 7), 5),
                    ("cat", (1, 1, 9, 9), 0)],
        "two.png": [("cat", (0.5, 1.25, 48, 40), 0)],
    },
    ("label-studio", "label-studio.json"): {
        "one.png": [("dog", (2, 3, 12, 15), 0), CAT],
        "two.png": [("cat", (0.5, 1.25, 48, 40), 0)],
    },
    ("coco-instances", "lvis.json"): {"one.png": [CAT, ("dog", (3.2, 4.1, 30.7, 35.5), 404)]},
}  # fmt: skip
"""Label, box and number of the mask's pixels, as written by, or read by, the tools that the README
of the files names."""


@pytest.mark.parametrize(("form", "file"), WRITTEN)
def test_files_that_tools_wrote(tmp_path, pictures, form, file):
    for place in ("images/sub/two.png", "val2017/one.png"):
        (tmp_path / place).parent.mkdir()
        (tmp_path / place).write_bytes(png(seed=1))
    found, rows = taken(form, write(tmp_path / file, (FILES / file).read_text()), tmp_path)
    assert not found.refused and not found.missing
    made = {
        name: [
            (
                row["label"],
                tuple(round(edge, 9) for edge in row["box_xyxy"]),
                int(coco_masks.decode(row["mask"]).sum()) if "mask" in row else 0,
            )
            for row in each
        ]
        for name, each in rows.items()
    }
    assert made == WRITTEN[form, file]


def studio(*results: dict, name="/data/upload/1/1a2b3c4d-one.png", **task) -> dict:
    base = {"original_width": 48, "original_height": 40, "image_rotation": 0, "id": "a",
            "from_name": "label", "to_name": "image", "type": "rectanglelabels"}  # fmt: skip
    return {
        "id": 1, "data": {"image": name, "title": "a cat"},
        "annotations": [{"id": 5, "was_cancelled": False, "result": [{**base, **r} for r in results]}],
        **task,
    }  # fmt: skip


def box(**value) -> dict:
    whole = {"x": 25, "y": 10.0, "width": 50.0, "height": 20.0, "rotation": 0}
    return {"value": {**whole, "rectanglelabels": ["cat"], **value}}


def test_label_studio(tmp_path, pictures):
    """Of the first task, label-studio-converter 0.0.59 makes the boxes [12, 4, 24, 8] and
    [24, 20, 24, 20] of COCO (x, y, width, height)."""
    corners = {"points": [[50, 50], [100, 50], [100, 100]], "polygonlabels": ["dog"]}
    polygon = {"value": corners, "type": "polygonlabels"}
    text = {"value": {"text": ["A cat."]}, "type": "textarea"}
    relation = {"type": "relation", "original_width": None, "original_height": None}
    twice = studio(box(), name="s3://bucket/x/two.png?versionId=1")
    twice["annotations"] *= 2
    tasks = [
        studio(
            box(),
            polygon,
            text,
            relation,
            {**box(), "image_rotation": 90},
            box(width=float("nan")),
            box(x="y"),
        ),
        twice,
        studio(box(), name="/data/local-files/?d=x/two.png"),
        studio(name="http://example.org/none.png"),
        {"image": "one.png", "label": []},
    ]
    source = write(tmp_path / "export.json", json.dumps(tasks))
    found, rows = taken("label-studio", source, pictures)
    triangle = segmentation_text([[24, 20, 48, 20, 48, 40]], height=40, width=48)
    assert rows == {
        "one.png": [
            {"box_xyxy": [12, 4, 36, 12], "label": "cat"},
            {"box_xyxy": [24, 20, 48, 40], "label": "dog", "width": 48, "height": 40,
             "mask": {"size": [40, 48], "counts": triangle}},
        ],
        "two.png": [{"box_xyxy": [12, 4, 36, 12], "label": "cat"}],
    }  # fmt: skip
    assert found.without == 1
    assert [each.split(": ", 1)[1] for each in found.refused] == [
        "result 5: a turned picture, whose box is none of the file's",
        "result 6: a box or score holds nan, want finite numbers",
        "result 7: could not convert string to float: 'y'",
        "2 annotations; mark one of them as ground truth",
        "no 'data'",
    ]


def test_tao(tmp_path, pictures):
    """Fields of the pipeline's documentation, and ``bbox_score`` as its own tests have it."""
    rows = [
        {"image_id": "1", "image_path": "/data/images/one.png", "width": 48, "height": 40,
         "caption": "um a red car", "cleaned_caption": "A red car passes a tree.",
         "expressions": [
             {"text": "red car", "expression_id": "expr_0", "char_span": [2, 9], "noun_chunk": "car",
              "instances": [{"bbox": [2, 3, 12, 15], "score": 0.75, "bbox_id": "b0"},
                            {"bbox": [20, 3, 30, 15], "bbox_score": 0.5, "bbox_id": "b1"}]},
             {"text": "a tree", "instances": [{"bbox": [1, 1, 9, 9], "score": 0.5}]},
             {"text": "street", "instances": []},
             {"text": "street", "instances": [{"bbox": [1, 1, 9, 9]}]},
             {"text": "red car", "char_span": [0, 5], "instances": [{"bbox": [1, 1, 9, 9]}]},
         ]},
        {"image_path": "two.png", "cleaned_caption": "A dog.", "expressions": []},
        {"image_path": "two.png", "caption": "Half of a character: \ud83d", "expressions": []},
    ]  # fmt: skip
    source = write(tmp_path / "annotations.jsonl", "".join(json.dumps(r) + "\n" for r in rows))
    found, regions = taken("tao", source, pictures)
    assert regions == {
        "one.png": [
            {"box_xyxy": [2, 3, 12, 15], "score": 0.75, "phrases": [[2, 9]]},
            {"box_xyxy": [20, 3, 30, 15], "score": 0.5, "phrases": [[2, 9]]},
            {"box_xyxy": [1, 1, 9, 9], "score": 0.5, "phrases": [[17, 23]]},
        ]
    }
    assert (found.captions, found.without, len(found.refused)) == (1, 1, 3)
    assert found.refused[2].startswith("line 3, two.png: the text 'Half of")
    [caption] = json_lines(tmp_path / "out.jsonl")
    assert caption["caption"] == "A red car passes a tree."


def test_a_build_has_the_boxes_labels_and_masks(tmp_path, pictures):
    (tmp_path / "captions.jsonl").write_text('{"path": "one.png", "caption": "A cat and a dog."}\n')
    source = write(tmp_path / "annotations.xml", CVAT)
    import_captions("cvat", source, tmp_path / "boxes.jsonl", images=None)
    run_build(
        pictures, tmp_path / "dataset", recipe="provided", captions=tmp_path / "captions.jsonl",
        regions=tmp_path / "boxes.regions.jsonl", overrides=["propose.keep_masks=true"],
    )  # fmt: skip
    [row] = Dataset(str(tmp_path / "dataset"))
    boxes = [(region.label, region.box.xyxy) for region in row.regions]
    assert boxes == [("dog", (2, 3, 12, 15)), ("cat", (20, 10, 40, 30)), ("cat", (4, 5, 7, 7))]
    pixels = {
        at: coco_masks.decode({"size": [40, 48], "counts": mask})
        for at, mask in masks_of(row).items()
    }
    assert {at: int(each.sum()) for at, each in pixels.items()} == {1: 400, 2: 5}


def test_boxes_and_masks_follow_a_turned_picture(tmp_path, pictures):
    """The masks too: the file states the picture before EXIF orientation 6."""
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (48, 40)).save(pictures / "one.jpg", exif=exif)
    source = write(tmp_path / "annotations.xml", CVAT.replace("one.png", "one.jpg"))
    found, rows = taken("cvat", source)
    assert found.turned == 1
    first, second, _ = rows["one.jpg"]
    assert first["box_xyxy"] == [40 - 15, 2, 40 - 3, 12]
    assert (second["width"], second["height"]) == (40, 48)
    (tmp_path / "captions.jsonl").write_text('{"path": "one.jpg", "caption": "A cat and a dog."}\n')
    import_captions("cvat", source, tmp_path / "boxes.jsonl", images=None)
    run_build(
        pictures, tmp_path / "dataset", recipe="provided", captions=tmp_path / "captions.jsonl",
        regions=tmp_path / "boxes.regions.jsonl", overrides=["propose.keep_masks=true"],
    )  # fmt: skip
    [row] = Dataset(str(tmp_path / "dataset"))
    pixels = coco_masks.decode({"size": [48, 40], "counts": masks_of(row)[1].encode()})
    x0, y0, x1, y1 = map(int, row.regions[1].box.xyxy)
    assert (x0, y0, x1, y1) == (10, 20, 30, 40)
    assert pixels[y0:y1, x0:x1].all()
    assert pixels.sum() == 20 * 20


def test_the_command_says_what_to_build(tmp_path, pictures):
    source = write(tmp_path / "annotations.xml", CVAT)
    words = ["import", str(source), "--format", "cvat", "-o", str(tmp_path / "my.jsonl")]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 0
    lines = found.stdout.splitlines()
    assert lines[0] == f"4 boxes of 2 images: {tmp_path}/my.regions.jsonl, 2 with a mask"
    assert lines[1] == (
        f"next: glit build {pictures} -o my-dataset -r laptop --regions {tmp_path}/my.regions.jsonl "
        "--set propose.keep_masks=true"
    )
    assert "shape 3: a cuboid" in found.stderr
    assert not (tmp_path / "my.jsonl").exists()


def test_the_next_command_and_names_with_line_breaks(tmp_path, monkeypatch, run_glit):
    """Annotations and pictures in the current folder; a missing picture's name has two lines."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.png").write_bytes(png())
    size = {"width": 48, "height": 40}
    images = [
        {"id": n, "file_name": name, **size} for n, name in enumerate(["a.png", "b\nall well.png"])
    ]
    boxes = [{"id": n, "image_id": n, "category_id": 1, "bbox": [1, 2, 9, 9]} for n in (0, 1)]
    coco = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "cup"}]}
    write(tmp_path / "c.json", json.dumps(coco))
    done = run_glit(
        "import", "c.json", "--format", "coco-instances", "--images", ".", "-o", "o.jsonl"
    )
    assert "next: glit build . -o o-dataset" in done.output
    assert r"missing: b\x0aall well.png" in done.errors
    done = run_glit("audit", "c.json", "--format", "coco-instances", "--images", ".")
    assert not any(line.strip().startswith("all well") for line in done.output.splitlines())
