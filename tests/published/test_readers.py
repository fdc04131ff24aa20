"""What all annotation readers have in common."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from annotations import conversations, found, touch

from glit.errors import InputError
from glit.evaluation.collection import open_collection
from glit.evaluation.config import EvaluateConfig
from glit.inputs.published import measured, read_annotations


def test_the_limit_comes_before_images_are_looked_for(tmp_path: Path) -> None:
    """Three of five images are there; the first three are asked for, then four."""
    source = tmp_path / "share-captioner_coco_lcs_sam_1246k_1107.json"
    source.write_text(json.dumps(conversations(5)))
    for i in range(3):
        touch(tmp_path / "sam/images" / f"sa_{i}.jpg")
    for limit in (1, 3):
        collection = open_collection(str(source), EvaluateConfig(limit=limit), kind="sharegpt4v")
        assert [c[0][:10] for c in collection.captions] == [f"Caption {i}." for i in range(limit)]
    for limit, wanted in ((4, "1 of 4"), (0, "2 of 5")):
        with pytest.raises(InputError, match=rf"{wanted} images are missing \(first: .*sa_3.jpg\)"):
            open_collection(str(source), EvaluateConfig(limit=limit), kind="sharegpt4v")


def test_images_without_a_caption_do_not_count_for_the_limit(tmp_path: Path) -> None:
    entries = conversations(3)
    entries[0]["conversations"][1]["value"] = " "
    source = tmp_path / "share.json"
    source.write_text(json.dumps(entries))
    touch(tmp_path / "sam/images/sa_1.jpg")
    kept = read_annotations("sharegpt4v", source, images=None, split=None, limit=1)
    assert [image.path.name for image in kept] == ["sa_1.jpg"]


def test_annotations_without_parts_refuse_a_split(tmp_path: Path) -> None:
    for name, file, text in (
        ("coco", "captions_val2017.json", '{"images": [], "annotations": []}'),
        ("flickr30k", "results_20130124.token", "1.jpg#0\tA dog .\n"),
        ("sharegpt4v", "share.json", "[]"),
        ("urban1k", "Urban1k/caption/1.txt", "Caption."),
    ):
        source = touch(tmp_path / file)
        source.write_text(text)
        source = tmp_path / "Urban1k" if name == "urban1k" else source
        with pytest.raises(InputError, match="'test': these annotations have no parts"):
            found(name, source, tmp_path, "test")


def test_a_glit_dataset_has_neither_parts_nor_an_image_folder(tmp_path: Path) -> None:
    for option in ({"split": "test"}, {"images": tmp_path}):
        with pytest.raises(InputError, match="--images and --split belong to annotations"):
            open_collection(str(tmp_path), EvaluateConfig(), **option)


def test_missing_images_are_refused(tmp_path: Path) -> None:
    for i in (1, 2):
        (tmp_path / "caption").mkdir(exist_ok=True)
        (tmp_path / "caption" / f"{i}.txt").write_text("Caption.")
    touch(tmp_path / "image" / "1.jpg")
    with pytest.raises(InputError, match=r"1 of 2 images are missing \(first: .*2.jpg\)"):
        found("urban1k", tmp_path)


def test_another_file_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "x.json"
    source.write_text('{"something": 1}')
    for name in ("coco", "docci", "sharegpt4v", "iiw"):
        with pytest.raises(InputError, match=f"not the {name} annotations as published"):
            found(name, source)
    with pytest.raises(InputError, match="known formats are glit, docci"):
        found("imagenet", source)
    with pytest.raises(InputError, match="no such file"):
        found("coco", tmp_path / "nowhere.json")


def test_every_reader_is_tried_here() -> None:
    tried = "docci dci dci-full urban1k coco flickr30k sharegpt4v iiw goal goal-joint himo-docci"
    assert set(measured()) == set(tried.split())
