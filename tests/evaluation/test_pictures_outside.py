"""Annotations of others name pictures; those outside the folder of pictures are not looked at."""

from __future__ import annotations

import json
import pickle
import shutil
import struct
import unicodedata
from pathlib import Path

import pytest
from building import json_lines, png

from glit.errors import InputError
from glit.evaluation.readers.boxes import class_boxes, expressions
from glit.evaluation.readers.questions import read_questions
from glit.inputs.importers import import_captions
from glit.inputs.published import read_annotations
from glit.inputs.published.files import plain_pickle

BOX = {"id": 1, "image_id": 1, "bbox": [0, 0, 9, 9], "category_id": 1, "neg_category_ids": []}


@pytest.fixture
def folder(tmp_path) -> Path:
    for place in ("images/in.png", "private/x.png"):
        (tmp_path / place).parent.mkdir()
        (tmp_path / place).write_bytes(png(seed=len(place)))
    return tmp_path


def _outside(folder: Path) -> list[str]:
    return ["../private/x.png", str(folder / "private" / "x.png"), "a/../../private/x.png"]


@pytest.mark.parametrize("number", range(3))
def test_an_importer_of_boxes_leaves_such_a_picture_out_with_its_line(folder, number):
    region = {"bbox": [0, 0, 9, 9], "phrase": "A dog"}
    file = folder / "a.jsonl"
    file.write_text(
        "".join(
            json.dumps({"filename": name, "grounding": {"caption": "A dog", "regions": [region]}})
            + "\n"
            for name in ("in.png", _outside(folder)[number])
        )
    )
    found = import_captions("odvg", file, folder / "out.jsonl", images=folder / "images")
    assert found.captions == 1
    assert Path(found.folder) == folder / "images"
    [fault] = found.refused
    assert fault.startswith("line 2: ")
    assert "leads out of" in fault
    assert [row["path"] for row in json_lines(folder / "out.jsonl")] == ["images/in.png"]


def test_the_folder_that_the_user_gives_may_hold_all(folder):
    file = folder / "a.jsonl"
    place = str(folder / "private" / "x.png")
    region = {"bbox": [0, 0, 9, 9], "phrase": "A dog"}
    row = {"filename": place, "grounding": {"caption": "A dog", "regions": [region]}}
    file.write_text(json.dumps(row) + "\n")
    found = import_captions("odvg", file, folder / "out.jsonl", images=folder)
    assert (found.captions, found.refused) == (1, ())


def test_a_link_in_the_folder_is_the_users_own(folder):
    (folder / "images" / "link").symlink_to(folder / "private")
    _coco(folder, "link/x.png")
    found = import_captions(
        "coco", folder / "c.json", folder / "out.jsonl", images=folder / "images"
    )
    assert found.captions == 1


def _coco(folder: Path, name: str, **more) -> None:
    values = {
        "images": [{"id": 1, "file_name": name}],
        "annotations": [{"image_id": 1, "caption": "A dog."}],
        **more,
    }
    (folder / "c.json").write_text(json.dumps(values))


@pytest.mark.parametrize("number", range(3))
def test_captions_boxes_and_questions_refuse_it(folder, number):
    name, images = _outside(folder)[number], folder / "images"
    _coco(folder, name)
    with pytest.raises(InputError, match="leads out of .*give --images the folder"):
        import_captions("coco", folder / "c.json", folder / "out.jsonl", images=images)
    with pytest.raises(InputError, match="leads out of"):
        read_annotations("coco", folder / "c.json", images=images, split=None)
    classes = [{"id": 1, "name": "dog"}]
    _coco(folder, name, annotations=[BOX], categories=classes)
    with pytest.raises(InputError, match="leads out of"):
        class_boxes(folder / "c.json", images=images)
    with pytest.raises(InputError, match="leads out of"):
        read_questions("fg-ovd", folder / "c.json", images=images)
    shutil.copy(folder / "c.json", folder / "instances.json")
    sentences = [{"sent": "a dog"}]
    ref = {"ref_id": 1, "image_id": 1, "ann_id": 1, "split": "val", "sentences": sentences}
    (folder / "refs(unc).p").write_bytes(pickle.dumps([ref], 2))
    with pytest.raises(InputError, match="leads out of"):
        expressions(folder, images=images, split=None)
    false = {"filename": name, "caption": "A dog", "negative_caption": "A cat"}
    (folder / "s.json").write_text(json.dumps({"0": false}))
    with pytest.raises(InputError, match="leads out of"):
        read_questions("sugarcrepe", folder / "s.json", images=images)


def _of_lists(depth: int) -> bytes:
    """Each list holds the one before it ten times."""
    made = b"\x80\x02]q\x00"
    for number in range(1, depth):
        made += b"]q" + bytes([number]) + (b"h" + bytes([number - 1]) + b"a") * 10
    return made + b"."


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"\x80\x02]r" + struct.pack("<I", 1 << 30) + b".", "at place 1073741824 of 9 bytes"),
        (b"]p1073741824\n.", "at place 1073741824 of 14 bytes"),
        (b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".", "1099511627776"),
        (b"", "no pickle"),
        (b".", "no pickle"),
        (b"]}b.", "no pickle"),
        (b"]q\x00h\x00a.", "repeats its values"),
        (_of_lists(60), "repeats its values"),
    ],
)
def test_a_pickle_that_fills_memory_is_refused(data, fault):
    with pytest.raises(ValueError, match=fault):
        plain_pickle(data)


@pytest.mark.parametrize("protocol", range(6))
def test_a_plain_pickle_is_read(protocol):
    values = [{"a": "é", "n": [1, 2.5, None, True]}] * 3
    assert plain_pickle(pickle.dumps(values, protocol)) == values


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_names_match_in_either_form_of_unicode(folder, form):
    name = unicodedata.normalize(form, "é.png")
    other = unicodedata.normalize({"NFC": "NFD", "NFD": "NFC"}[form], "é.png")
    shutil.copy(folder / "images" / "in.png", folder / "images" / name)
    _coco(folder, other)
    images = folder / "images"
    found = import_captions("coco", folder / "c.json", folder / "out.jsonl", images=images)
    assert (found.captions, found.missing) == (1, ())
    assert [row["path"] for row in json_lines(folder / "out.jsonl")] == [f"images/{name}"]
    [image] = read_annotations("coco", folder / "c.json", images=images, split=None)
    assert image.path == images / name
    region = {"bbox": [0, 0, 9, 9], "phrase": "A dog"}
    row = {"filename": other, "grounding": {"caption": "A dog", "regions": [region]}}
    (folder / "a.jsonl").write_text(json.dumps(row) + "\n")
    import_captions("odvg", folder / "a.jsonl", folder / "o.jsonl", images=images)
    assert [row["path"] for row in json_lines(folder / "o.jsonl")] == [f"images/{name}"]
