"""A damaged entry is left out and named, and never ends an import; what is said of it is right."""

from __future__ import annotations

import json
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from building import json_lines, png

import glit
from glit.errors import InputError
from glit.inputs.importers import import_captions
from glit.inputs.published import FORMATS, measured, read_annotations

IMAGE = {"id": 1, "file_name": "a.png", "width": 48, "height": 40}
BOX = {"bbox": [1, 2, 9, 9], "phrase": "cup"}
ODVG = {"filename": "a.png", "grounding": {"caption": "A cup on a table", "regions": []}}
GRIT = {
    "key": "000000000",
    "file_name": "a.png",
    "caption": "A cup",
    "noun_chunks": [],
    "ref_exps": [],
}
GOOD = [0, 5, 0.1, 0.1, 0.5, 0.5, 1.0]


@pytest.fixture
def folder(tmp_path):
    for number, name in enumerate("ab"):
        (tmp_path / f"{name}.png").write_bytes(png(seed=number))
    return tmp_path


def odvg(*regions) -> list[dict]:
    return [{**ODVG, "grounding": {**ODVG["grounding"], "regions": list(regions)}}]


LINES = {
    "odvg": [odvg({**BOX, "bbox": []}, BOX), odvg({"phrase": "cup"}, BOX), odvg(None, BOX)],
    "finehard": [
        [{"f_path": "a.png", "caption": "A cup", "bbox_info": [bad, good]}]
        for good in [{"bbox": [0.1, 0.1, 0.5, 0.5], "long_expr": "A cup", "short_expr": "cup"}]
        for bad in (None, {}, {**good, "bbox": None}, {**good, "long_expr": 7})
    ],
    "visual-genome": [
        [{"id": "a", "regions": [bad, good]}]
        for good in [{"x": 1, "y": 2, "width": 9, "height": 9, "phrase": "a cup"}]
        for bad in (None, {}, {**good, "phrase": None}, {**good, "x": None})
    ],
    "mdetr": [
        {"images": [{**IMAGE, "caption": "A cup"}], "annotations": [{"image_id": 1, **bad}, good]}
        for good in [{"image_id": 1, "bbox": [1, 2, 9, 9], "tokens_positive": [[0, 5]]}]
        for bad in ({}, {**good, "bbox": None}, {**good, "tokens_positive": 7})
    ],
}


@pytest.mark.parametrize(
    ("form", "values"), [(form, values) for form, some in LINES.items() for values in some]
)
def test_one_region_of_a_wrong_type_is_left_out(folder, form, values):
    (folder / "a.jpg").write_bytes(png())
    lines = "\n".join(map(json.dumps, values)) if form == "odvg" else json.dumps(values)
    (folder / "f.json").write_text(lines)
    [image] = FORMATS[form].read(folder / "f.json", folder, None)
    assert not image.fault and len(image.left_out) == 1 and len(image.rows) == 1


@pytest.mark.parametrize(
    ("form", "bad", "good"),
    [
        ("odvg", 7, odvg(BOX)[0]),
        ("odvg", {"filename": None}, odvg(BOX)[0]),
        ("finehard", {"f_path": 3}, LINES["finehard"][0][0]),
        ("visual-genome", None, LINES["visual-genome"][0][0]),
    ],
)
def test_one_entry_of_a_wrong_type_is_left_out(folder, form, bad, good):
    both = [bad, good]
    text = "\n".join(map(json.dumps, both)) if form == "odvg" else json.dumps(both)
    (folder / "f.json").write_text(text)
    first, second = FORMATS[form].read(folder / "f.json", folder, None)
    assert first.fault and not second.fault


def test_grit_and_refcoco(folder):
    rows = [{**GRIT, "noun_chunks": [GOOD, [0.0, 1.0]]}, {**GRIT, "noun_chunks": None}]
    pq.write_table(pa.Table.from_pylist(rows), folder / "g.parquet")
    first, second = FORMATS["grit"].read(folder / "g.parquet", folder, None)
    assert len(first.rows) == len(first.left_out) == 1 and not second.fault
    refs = [
        {"ref_id": n, "ann_id": n, "image_id": 1, "split": "train", "sentences": [{"sent": "cup"}]}
        for n in (1, 2, 3)
    ]
    (folder / "refs.p").write_bytes(pickle.dumps(refs))
    boxes = [
        {"id": 1, "category_id": 1, "bbox": None},
        {"id": 2, "category_id": 1, "bbox": [1, 2, 9, 9]},
    ]
    values = {"images": [IMAGE], "categories": [{"id": 1, "name": "cup"}], "annotations": boxes}
    (folder / "instances.json").write_text(json.dumps(values))
    [image] = FORMATS["refcoco"].read(folder / "refs.p", folder, "train")
    assert len(image.rows) == 1 and len(image.left_out) == 2


@pytest.mark.parametrize("captions", [[None, "A cup"], ["A cup", None]])
def test_captions_are_written_if_any_row_has_one(folder, captions):
    objects = {"bbox": [[1.0, 2.0, 9.0, 9.0]], "category": ["cup"]}
    rows = [
        {"image": {"bytes": png(seed=n), "path": None}, "caption": text, "objects": objects}
        for n, text in enumerate(captions)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "h.parquet")
    found = import_captions("hf", folder / "h.parquet", folder / "o.jsonl", images=None)
    assert (found.captions, found.regions) == (1, 2)
    [line] = json_lines(folder / "o.jsonl")
    assert line["caption"] == "A cup"  # without a full stop that it did not have


def test_rows_of_odvg_for_detection_beside_captions(folder):
    detection = {
        "filename": "b.png",
        "detection": {"instances": [{"bbox": [1, 2, 9, 9], "category": "dog"}]},
    }
    for lines, captions in (([odvg(BOX)[0], detection], 1), ([detection], 0)):
        (folder / "f.jsonl").write_text("\n".join(map(json.dumps, lines)))
        found = import_captions("odvg", folder / "f.jsonl", folder / "o.jsonl", images=folder)
        assert (found.captions, found.regions) == (captions, len(lines))
        assert json_lines(folder / "o.regions.jsonl")[-1]["label"] == "dog"


def test_boxes_that_are_the_same_once_cut_are_called_so(folder):
    boxes = [
        {"bbox": [1, 2, 60, 70], "category": "dog"},
        {"bbox": [1, 2, 90, 90], "category": "dog"},
    ]
    line = {"filename": "a.png", "detection": {"instances": boxes}}
    (folder / "f.jsonl").write_text(json.dumps(line))
    found = import_captions("odvg", folder / "f.jsonl", folder / "o.jsonl", images=folder)
    assert (found.regions, found.empty, found.repeated) == (1, 0, 1)


@pytest.mark.parametrize(
    ("boxes", "unit"),
    [([[100, 100, 900, 900]] * 4, "thousandths"), ([[0.1, 0.1, 0.5, 0.5]] * 2, "shares")],
)
def test_other_units_stop_an_import(folder, boxes, unit):
    line = {"filename": "a.png", "detection": {"instances": [
        {"bbox": box, "category": str(number)} for number, box in enumerate(boxes)]}}  # fmt: skip
    (folder / "f.jsonl").write_text(json.dumps(line))
    with pytest.raises(InputError, match=f"are {unit} of"):
        import_captions("odvg", folder / "f.jsonl", folder / "o.jsonl", images=folder)
    assert not (folder / "o.regions.jsonl").exists()


def test_a_text_of_a_region_in_label_studio_is_its_sentence(folder):
    size = {"original_width": 48, "original_height": 40, "image_rotation": 0, "id": "r"}
    box = {"x": 10, "y": 10, "width": 50, "height": 50, "rotation": 0}
    results = [
        {**size, "type": "rectanglelabels", "value": {**box, "rectanglelabels": ["cup"]}},
        {**size, "type": "textarea", "value": {**box, "text": ["A red cup."]}},
    ]
    task = {"data": {"image": "a.png"}, "annotations": [{"result": results}]}
    (folder / "l.json").write_text(json.dumps([task]))
    found = import_captions("label-studio", folder / "l.json", folder / "o.jsonl", images=folder)
    assert (found.captions, found.regions) == (1, 1)
    [row] = json_lines(folder / "o.regions.jsonl")
    assert (row["label"], row["sentences"]) == ("cup", [[0, 10]])


@pytest.mark.parametrize(
    ("form", "other"), [("coco", "coco-instances"), ("coco-instances", "coco")]
)
def test_captions_and_boxes_of_coco_name_each_other(folder, form, other):
    said = (
        {"image_id": 1, "caption": "A."}
        if form != "coco"
        else {"image_id": 1, "bbox": [1, 2, 9, 9]}
    )
    (folder / "c.json").write_text(
        json.dumps({"images": [IMAGE], "annotations": [said], "categories": []})
    )
    with pytest.raises(InputError, match=f"take --format {other}"):
        import_captions(form, folder / "c.json", folder / "o.jsonl", images=folder)


def coco_captions(*captions) -> dict:
    annotations = [{"id": n, "image_id": 1, "caption": each} for n, each in enumerate(captions)]
    return {"images": [IMAGE], "annotations": annotations}


GPT = {"from": "gpt", "value": "A cup."}
NARRATIVE = {"image_id": "a", "dataset_id": "open_images", "caption": "A cup."}
ORIGINAL = {"original_filename": "a.png", "original_caption": "A cup."}
CAPTIONS = {
    "goal": [{"filename": "a.png", "caption": "A cup."}, None, {"filename": "b.png"}],
    "goal-train": [ORIGINAL, None, {**ORIGINAL, "original_caption": None}],
    "sharegpt4v": [{"image": "a.png", "conversations": [GPT]}, None, {"image": "b.png"}],
    "localized-narratives": [NARRATIVE, None, {**NARRATIVE, "caption": None}],
    "docci": [
        {"split": "train", "image_file": "a.png", "description": "A cup."},
        {"split": "train", "image_file": "b.png", "description": None},
        None,
    ],
    "coco": coco_captions("A cup.", None, 7),
}


@pytest.mark.parametrize("form", CAPTIONS)
def test_one_caption_of_a_wrong_type_is_left_out_and_named(folder, form):
    """Of an import and of an audit; a benchmark is refused, as it would be another one."""
    (folder / "a.jpg").write_bytes(png())
    values = CAPTIONS[form]
    is_lines = form in ("localized-narratives", "docci")
    text = "\n".join(map(json.dumps, values)) if is_lines else json.dumps(values)
    (folder / "f.json").write_text(text)
    made = import_captions(form, folder / "f.json", folder / "o.jsonl", images=folder)
    assert [row["caption"] for row in json_lines(folder / "o.jsonl")] == ["A cup."]
    assert made.captions == 1 and made.num_refused == 2 and "entry" in made.refused[0]
    found = glit.audit(folder / "f.json", format=form, images=folder)
    assert {each.code: each.at_fault for each in found.findings}["unreadable"] == 2
    if form in measured():
        with pytest.raises(InputError, match="entry"):
            split = "train" if form == "docci" else None
            read_annotations(form, folder / "f.json", images=folder, split=split)


def test_what_else_one_entry_leaves_out(folder):
    values = {"images": [IMAGE], "categories": [None, {"id": 1, "name": "cup"}], "annotations": [
        {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 9, 9]}]}  # fmt: skip
    (folder / "c.json").write_text(json.dumps(values))
    [image] = FORMATS["coco-instances"].read(folder / "c.json", folder, None)
    assert len(image.rows) == 1
    box = {"x": 10, "y": 10, "width": 50, "height": 50, "rotation": 0, "rectanglelabels": ["cup"]}
    size = {"original_width": 48, "original_height": 40, "image_rotation": 0}
    good = {**size, "type": "rectanglelabels", "value": box}
    task = {"data": {"image": "a.png"}, "annotations": [{"result": [None, good]}]}
    (folder / "l.json").write_text(json.dumps([task]))
    [image] = FORMATS["label-studio"].read(folder / "l.json", folder, None)
    assert not image.fault and len(image.rows) == 1 and len(image.left_out) == 1
    (folder / "Sentences").mkdir()
    (folder / "Sentences" / "a.txt").write_text("A [/EN#1/other cup] .")
    [image] = FORMATS["flickr30k-entities"].read(folder, folder, None)
    assert image.fault == "no file a.xml in Annotations"
