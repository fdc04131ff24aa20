"""Boxes whose annotations state another picture than the image: moved, or left out and named."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from annotations import lines
from building import json_lines, png, run_build
from PIL import Image

from glit.dataset.reader import Dataset
from glit.errors import InputError
from glit.evaluation.readers.boxes import class_boxes, expressions
from glit.evaluation.readers.questions import read_questions
from glit.inputs.importers import Imported, import_captions, regions_file
from glit.inputs.region_file import read_region_file

TEXT = "A cat sits."


def picture(path: Path, width: int, height: int, *, orientation: int = 0) -> Path:
    """An image file; ``width`` and ``height`` are those of its own pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    exif = Image.Exif()
    if orientation:
        exif[0x0112] = orientation
    Image.new("RGB", (width, height), "grey").save(path, exif=exif)
    return path


def coco(width, height, bbox, **rest):
    return {
        "images": [{"id": 1, "file_name": "1.jpg", "width": width, "height": height, **rest}],
        "categories": [{"id": 3, "name": "cat"}],
        "annotations": [{"id": 5, "image_id": 1, "category_id": 3, "bbox": bbox}],
    }


def mdetr(folder, width, height, box):
    x0, y0, x1, y1 = box
    values = coco(width, height, [x0, y0, x1 - x0, y1 - y0], caption=TEXT)
    values["annotations"][0]["tokens_positive"] = [[0, 5]]
    file = folder / "final.json"
    file.write_text(json.dumps(values))
    return file


def odvg(folder, width, height, box):
    region = {"bbox": box, "phrase": "cat"}
    grounding = {"caption": TEXT, "regions": [region]}
    line = {"filename": "1.jpg", "width": width, "height": height, "grounding": grounding}
    return lines(folder / "o.jsonl", [line])


def refcoco(folder, width, height, box):
    x0, y0, x1, y1 = box
    values = coco(width, height, [x0, y0, x1 - x0, y1 - y0])
    (folder / "instances.json").write_text(json.dumps(values))
    ref = {"ref_id": 1, "image_id": 1, "ann_id": 5, "category_id": 3, "split": "val",
           "sentences": [{"sent": TEXT}]}  # fmt: skip
    file = folder / "refs(unc).p"
    file.write_bytes(pickle.dumps([ref]))
    return file


def flickr(folder, width, height, box):
    x0, y0, x1, y1 = box
    (folder / "Annotations").mkdir()
    (folder / "Sentences").mkdir()
    (folder / "Annotations" / "1.xml").write_text(
        f"<annotation><filename>1.jpg</filename><size><width>{width}</width><height>{height}"
        "</height></size><object><name>7</name><bndbox>"
        f"<xmin>{x0 + 1}</xmin><ymin>{y0 + 1}</ymin><xmax>{x1}</xmax><ymax>{y1}</ymax>"
        "</bndbox></object></annotation>"
    )
    (folder / "Sentences" / "1.txt").write_text("[/EN#7/people A cat] sits .\n")
    return folder


def genome(folder, width, height, box):
    x0, y0, x1, y1 = box
    region = {"x": x0, "y": y0, "width": x1 - x0, "height": y1 - y0, "phrase": TEXT}
    file = folder / "region_descriptions.json"
    file.write_text(json.dumps([{"id": 1, "regions": [region]}]))
    sizes = [{"image_id": 1, "width": width, "height": height}]
    (folder / "image_data.json").write_text(json.dumps(sizes))
    return file


PIXELS = {
    "mdetr": mdetr,
    "odvg": odvg,
    "refcoco": refcoco,
    "flickr30k-entities": flickr,
    "visual-genome": genome,
}


def imported(name: str, source: Path) -> tuple[Imported, list[list[float]]]:
    """What is said, and the boxes."""
    output = source.parent / "out.jsonl"
    found = import_captions(name, source, output, images=source.parent / "images")
    return found, [row["box_xyxy"] for row in json_lines(regions_file(output))]


@pytest.mark.parametrize("name", PIXELS)
def test_boxes_are_scaled_and_turned_by_every_importer(tmp_path, name):
    for part, size, orientation, box, said in [
        ("same", (400, 300), 0, [20, 40, 80, 100], (0, 0)),
        ("scaled", (200, 150), 0, [10, 20, 40, 50], (1, 0)),
        ("turned", (400, 300), 6, [200, 20, 260, 80], (0, 1)),
        ("near", (401, 300), 0, [20, 40, 80, 100], (0, 0)),
    ]:
        folder = tmp_path / part / "a"
        picture(folder.parent / "images" / "1.jpg", *size, orientation=orientation)
        folder.mkdir()
        source = PIXELS[name](folder, 400, 300, [20, 40, 80, 100])
        if source == folder:
            found, boxes = imported(name, folder)
        else:
            (folder / "images").symlink_to(folder.parent / "images")
            found, boxes = imported(name, source)
        assert boxes == [box], part
        assert (found.scaled, found.turned, found.refused) == (*said, ()), part


@pytest.mark.parametrize("name", PIXELS)
def test_a_picture_of_another_shape_is_left_out_with_both_sizes(tmp_path, name):
    picture(tmp_path / "images" / "1.jpg", 300, 400)
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "images").symlink_to(tmp_path / "images")
    source = PIXELS[name](folder, 400, 300, [20, 40, 80, 100])
    with pytest.raises(InputError, match="on a picture of 400x300 pixels, the image has 300x400"):
        imported(name, source)


def test_shares_are_turned_and_not_scaled(tmp_path):
    for number, (orientation, width, height) in enumerate([(8, 400, 300), (0, 200, 150)]):
        picture(tmp_path / f"{number}.jpg", width, height, orientation=orientation)
    rows = [
        {"key": f"{number}", "file_name": f"{number}.jpg", "caption": TEXT, "width": 400,
         "height": 300, "noun_chunks": [[0.0, 5.0, 0.0, 0.25, 0.5, 0.5, 0.9]], "ref_exps": []}
        for number in range(2)
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "g.parquet")
    found = import_captions("grit", tmp_path / "g.parquet", tmp_path / "o.jsonl", images=tmp_path)
    boxes = [row["box_xyxyn"] for row in json_lines(tmp_path / "o.regions.jsonl")]
    assert boxes == [[0.25, 0.5, 0.5, 1.0], [0.0, 0.25, 0.5, 0.5]]
    assert (found.turned, found.scaled) == (1, 1)


def test_values_that_are_no_box_are_named_and_not_written(tmp_path):
    picture(tmp_path / "1.jpg", 40, 30)
    good = {"bbox": [1, 2, 3, 4], "phrase": "cat"}
    bad = [[float("nan"), 2, 3, 4], [1, 2, float("inf"), 4], [1, 2, 10**400, 4]]
    regions = [good, *({**good, "bbox": box} for box in bad), {**good, "phrase": "sit"}]
    grounding = {"caption": TEXT, "regions": regions}
    line = {"filename": "1.jpg", "width": 40, "height": 30, "grounding": grounding}
    source = lines(tmp_path / "o.jsonl", [line])
    found = import_captions("odvg", source, tmp_path / "out.jsonl", images=tmp_path)
    assert found.regions == 1 and len(found.refused) == 4
    assert found.refused[3] == (
        "line 1, 1.jpg: the phrase 'sit' is not in the caption 'A cat sits.'"
    )
    assert "NaN" not in regions_file(tmp_path / "out.jsonl").read_text()


def test_stated_words_and_offsets_must_agree(tmp_path):
    picture(tmp_path / "1.jpg", 40, 30)
    caption = "😀 e\u0301t, a red  door"
    start = caption.index("a red")
    region = {"bbox": [1, 2, 3, 4], "phrase": "a red door"}
    spans = [[start, len(caption)], [start + 1, len(caption) + 1]]
    spans.append([len(caption[:start].encode()), len(caption.encode())])
    regions = [{**region, "tokens_positive": [span]} for span in spans]
    grounding = {"caption": f"{caption}.......", "regions": regions}
    line = {"filename": "1.jpg", "width": 40, "height": 30, "grounding": grounding}
    source = lines(tmp_path / "o.jsonl", [line])
    found = import_captions("odvg", source, tmp_path / "out.jsonl", images=tmp_path)
    [row] = json_lines(tmp_path / "out.regions.jsonl")
    [text] = json_lines(tmp_path / "out.jsonl")
    [[first, last]] = row["phrases"]
    assert text["caption"][first:last] == "a red  door" and (first, last) == (start - 1, start + 10)
    assert len(found.refused) == 2 and "not bytes or UTF-16 units" in found.refused[0]


def region_of(text: str, size=(40, 30), orientation: int = 1):
    width, height = size
    [found] = read_region_file(text, width=width, height=height, orientation=lambda: orientation)
    return found.region


def test_a_file_beside_an_image_may_state_its_picture():
    text = json.dumps({"width": 80, "height": 60, "regions": [{"box": [10, 20, 30, 40]}]})
    assert region_of(text).box.xyxy == (5, 10, 15, 20)
    with pytest.raises(ValueError, match="region 0: made on a picture of 80x60 pixels, the image"):
        region_of(text, (40, 40))
    turned = json.dumps({"regions": [{"width": 40, "height": 30, "box_xywh": [2, 4, 6, 6]}]})
    assert region_of(turned, (30, 40), 6).box.xyxy == (20, 2, 26, 8)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools
def test_a_mask_moves_with_its_box():
    from pycocotools import mask as judge

    raw = np.zeros((30, 40), np.uint8)
    raw[4:10, 2:8] = 1
    counts = judge.encode(np.asfortranarray(raw))["counts"].decode()
    region = {"box": [2, 4, 8, 10], "mask": {"size": [30, 40], "counts": counts}}
    for size, orientation, wanted in [
        ((40, 30), 1, raw),
        ((30, 40), 6, np.rot90(raw, -1)),
        ((80, 60), 1, raw.repeat(2, 0).repeat(2, 1)),
        ((60, 80), 8, np.rot90(raw).repeat(2, 0).repeat(2, 1)),
    ]:
        found = region_of(json.dumps({"regions": [region]}), size, orientation)
        shape = {"size": [size[1], size[0]], "counts": found.mask.encode()}
        assert (judge.decode(shape) == wanted).all()
        x, y, width, height = judge.toBbox(shape)
        assert found.box.xyxy == (x, y, x + width, y + height)


def test_boxes_by_their_centre():
    for key, box in [("box_cxcywh", [12, 12, 8, 12]), ("box_cxcywhn", [0.3, 0.4, 0.2, 0.4])]:
        text = json.dumps({"regions": [{key: box}]})
        assert region_of(text).box.xyxy == pytest.approx((8, 6, 16, 18))


def test_a_build_of_coco_boxes_of_three_pictures(tmp_path, capsys):
    picture(tmp_path / "images" / "a.jpg", 200, 150)
    picture(tmp_path / "images" / "b.jpg", 400, 300, orientation=6)
    picture(tmp_path / "images" / "c.jpg", 300, 300)
    (tmp_path / "images" / "d.png").write_bytes(png(seed=1))
    names = ["a.jpg", "b.jpg", "c.jpg", "d.png"]
    lines(tmp_path / "c.jsonl", [{"path": name, "caption": TEXT} for name in names])
    found = {
        "images": [
            {"id": n, "file_name": name, "width": 400, "height": 300}
            for n, name in enumerate(names[:3])
        ],
        "annotations": [{"image_id": n, "bbox": [20, 40, 60, 60]} for n in range(4)],
    }
    found["images"].append({"id": 3, "file_name": "d.png", "width": None})
    found["annotations"][3]["bbox"] = [1, 2, 8, 9]
    (tmp_path / "r.json").write_text(json.dumps(found))
    manifest = run_build(
        tmp_path / "images", tmp_path / "out", recipe="provided", captions=tmp_path / "c.jsonl",
        regions=tmp_path / "r.json",
    )  # fmt: skip
    assert manifest.counts.drops == {"propose/bad_masks": 1}
    boxes = {row.source_path: row.regions[0].box.xyxy for row in Dataset(str(tmp_path / "out"))}
    assert boxes == {
        "a.jpg": (10, 20, 40, 50), "b.jpg": (200, 20, 260, 80), "d.png": (1, 2, 9, 11),
    }  # fmt: skip
    [drop] = pq.read_table(tmp_path / "out" / "drops.parquet").to_pylist()
    assert "made on a picture of 400x300 pixels, the image has 300x300" in drop["message"]


def test_benchmarks_with_boxes(tmp_path):
    picture(tmp_path / "1.jpg", 200, 150)
    values = coco(400, 300, [20, 40, 60, 60])
    (tmp_path / "instances.json").write_text(json.dumps(values))
    with pytest.warns(UserWarning, match="boxes of 1 image were scaled"):
        [(_, box)] = class_boxes(tmp_path / "instances.json", images=tmp_path).parts
    assert box == (10, 20, 40, 50)
    refcoco(tmp_path, 400, 300, [20, 40, 80, 100])
    with pytest.warns(UserWarning, match=r"instances\.json: boxes of 1 image were scaled"):
        [question] = expressions(tmp_path, images=tmp_path, split="val")
    assert question.parts[0][1] == (10, 20, 40, 50)
    values["annotations"][0]["neg_category_ids"] = [3, 3]
    (tmp_path / "fg.json").write_text(json.dumps(values))
    with pytest.warns(UserWarning, match="were scaled"):
        [question] = read_questions("fg-ovd", tmp_path / "fg.json", images=tmp_path)
    assert question.parts[0][1] == (10, 20, 40, 50)
    picture(tmp_path / "1.jpg", 200, 200)
    for read in (
        lambda: class_boxes(tmp_path / "instances.json", images=tmp_path),
        lambda: expressions(tmp_path, images=tmp_path, split="val"),
        lambda: read_questions("fg-ovd", tmp_path / "fg.json", images=tmp_path),
    ):
        with pytest.raises(InputError, match="400x300 pixels, the image has 200x200"):
            read()
