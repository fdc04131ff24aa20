"""Annotation files in the layouts their publishers ship."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from glit.errors import InputError
from glit.evaluate.readers import READERS, read_annotations


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


def found(name: str, source: Path, images: Path | None = None, split: str = "test") -> dict:
    return {
        str(image.path): image.captions
        for image in read_annotations(name, source, images=images, split=split)
    }


def lines(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_docci(tmp_path: Path) -> None:
    source = lines(
        tmp_path / "docci_descriptions.jsonlines",
        [
            {
                "example_id": f"{split}_0000{i}",
                "split": split,
                "image_file": f"{split}_0000{i}.jpg",
                "description": f"Description {split} {i}.",
            }
            for i, split in enumerate(["train", "test", "qual_test", "test"])
        ],
    )
    for i in (1, 3):
        touch(tmp_path / "images" / f"test_0000{i}.jpg")
    assert found("docci", source) == {
        str(tmp_path / "images/test_00001.jpg"): ("Description test 1.",),
        str(tmp_path / "images/test_00003.jpg"): ("Description test 3.",),
    }


def test_dci_takes_the_long_caption_and_leaves_out_images_without_one(tmp_path: Path) -> None:
    root = tmp_path / "densely_captioned_images"
    for i, extra in enumerate(["Long one.", "", "Long three."]):
        values = {
            "image": f"sa_{i}.jpg",
            "short_caption": "Short.",
            "extra_caption": extra,
            "mask_data": {},
        }
        path = root / "annotations" / f"sa_{i}_annotation.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
        touch(root / "photos" / f"sa_{i}.jpg")
    assert list(found("dci", root).values()) == [("Long one.",), ("Long three.",)]
    (root / "splits.json").write_text(
        json.dumps({"train": ["sa_0_annotation.json"], "test": ["sa_2_annotation.json"]})
    )
    assert list(found("dci", root).values()) == [("Long three.",)]
    assert len(found("dci", root, split="all")) == 2


def test_urban1k_in_numeric_order(tmp_path: Path) -> None:
    for i in (10, 2, 1):
        touch(tmp_path / "image" / f"{i}.jpg")
        (tmp_path / "caption").mkdir(exist_ok=True)
        (tmp_path / "caption" / f"{i}.txt").write_text(f"Caption {i}.\n")
    assert list(found("urban1k", tmp_path).values()) == [
        ("Caption 1.",),
        ("Caption 2.",),
        ("Caption 10.",),
    ]


def test_coco_as_published(tmp_path: Path) -> None:
    source = tmp_path / "captions_val2014.json"
    source.write_text(
        json.dumps(
            {
                "images": [
                    {"id": 7, "file_name": "COCO_val2014_7.jpg"},
                    {"id": 3, "file_name": "COCO_val2014_3.jpg"},
                ],
                "annotations": [
                    {"image_id": 3, "id": 1, "caption": "c"},
                    {"image_id": 7, "id": 2, "caption": "a "},
                    {"image_id": 7, "id": 3, "caption": "b"},
                ],
            }
        )
    )
    images = tmp_path / "val2014"
    for i in (3, 7):
        touch(images / f"COCO_val2014_{i}.jpg")
    assert list(found("coco", source, images).values()) == [("a", "b"), ("c",)]


@pytest.mark.parametrize(("name", "filepath"), [("coco", "val2014"), ("flickr30k", None)])
def test_karpathy_splits(tmp_path: Path, name: str, filepath: str | None) -> None:
    entries = []
    for i, split in enumerate(["train", "test"]):
        entry = {
            "filename": f"{i}.jpg",
            "split": split,
            "sentences": [{"raw": f"{split} {i}."}, {"raw": "second"}],
        }
        entries.append({**entry, "filepath": filepath} if filepath else entry)
    source = tmp_path / f"dataset_{name}.json"
    source.write_text(json.dumps({"images": entries, "dataset": name}))
    image = touch(tmp_path / "images" / (filepath or "") / "1.jpg")
    assert found(name, source, tmp_path / "images") == {str(image): ("test 1.", "second")}


def test_flickr30k_token_file(tmp_path: Path) -> None:
    source = tmp_path / "results_20130124.token"
    source.write_text("1.jpg#0\tTwo men .\n1.jpg#1\tA yard .\n2.jpg#0\tA dog .\n")
    for i in (1, 2):
        touch(tmp_path / "flickr30k-images" / f"{i}.jpg")
    result = found("flickr30k", source, tmp_path / "flickr30k-images")
    assert list(result.values()) == [("Two men .", "A yard ."), ("A dog .",)]


def test_sharegpt4v(tmp_path: Path) -> None:
    source = tmp_path / "share-captioner_coco_lcs_sam_1246k_1107.json"
    source.write_text(
        json.dumps(
            [
                {
                    "id": "000000000009",
                    "image": "sam/images/sa_9.jpg",
                    "conversations": [
                        {"from": "human", "value": "<image>\nDescribe the image."},
                        {"from": "gpt", "value": "A long caption."},
                    ],
                }
            ]
        )
    )
    image = touch(tmp_path / "data" / "sam/images/sa_9.jpg")
    assert found("sharegpt4v", source, tmp_path / "data") == {str(image): ("A long caption.",)}


def test_iiw_by_key_and_by_image(tmp_path: Path) -> None:
    source = lines(
        tmp_path / "data.jsonl",
        [
            {"image/key": "aar_test_04600", "IIW": "By people.", "IIW-P5B": "Generated."},
            {"image": "sa_1.jpg", "ex_id": "x", "IIW": "Of DCI."},
            {"image/key": "only", "IIW-P5B": "Generated only."},
        ],
    )
    for name in ("aar_test_04600.jpg", "sa_1.jpg", "only.png"):
        touch(tmp_path / "images" / name)
    assert list(found("iiw", source).values()) == [
        ("By people.",),
        ("Of DCI.",),
        ("Generated only.",),
    ]


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
    assert set(READERS) == {"docci", "dci", "urban1k", "coco", "flickr30k", "sharegpt4v", "iiw"}
