"""Annotation files in the layouts their publishers ship."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glit.errors import InputError
from glit.evaluate.collection import open_collection
from glit.evaluate.config import EvaluateConfig
from glit.evaluate.readers import READERS, files, read_annotations


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


def conversations(number: int) -> list[dict]:
    return [
        {
            "id": f"{i:012}",
            "image": f"sam/images/sa_{i}.jpg",
            "conversations": [
                {"from": "human", "value": "What is this?\n<image>"},
                {"from": "gpt", "value": f'Caption {i}. It has [brackets], "quotes" and {{}}.'},
            ],
        }
        for i in range(number)
    ]


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
    kept = read_annotations("sharegpt4v", source, images=None, split="test", limit=1)
    assert [image.path.name for image in kept] == ["sa_1.jpg"]


def test_a_long_array_is_read_no_further_than_asked(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(files, "CHUNK", 100)
    source = tmp_path / "share.json"
    source.write_text(json.dumps(conversations(9), indent=1)[:-300])
    touch(tmp_path / "sam/images/sa_0.jpg")
    kept = read_annotations("sharegpt4v", source, images=None, split="test", limit=1)
    assert kept[0].captions == ('Caption 0. It has [brackets], "quotes" and {}.',)
    with pytest.raises(InputError, match="not the sharegpt4v annotations as published"):
        read_annotations("sharegpt4v", source, images=None, split="test")


@given(
    values=st.lists(st.dictionaries(st.text(max_size=3), st.text() | st.integers(), max_size=3)),
    indent=st.sampled_from([None, 0, 2]),
    chunk=st.integers(1, 30),
)
def test_an_array_in_pieces_is_the_array(
    values: list[dict], indent: int | None, chunk: int
) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "CHUNK", chunk)
        path = Path(folder) / "x.json"
        path.write_text(json.dumps(values, indent=indent, ensure_ascii=False), encoding="utf-8")
        assert list(files.json_array(path)) == values


@pytest.mark.parametrize("text", ["", "{}", "[", '[{"a": 1}', '[{"a": 1},', "[{} {}]", "[{},]"])
def test_what_is_no_array_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ValueError):
        list(files.json_array(path))


def test_a_line_separator_inside_a_caption_ends_no_line(tmp_path: Path) -> None:
    row = {"split": "test", "image_file": "test_00000.jpg", "description": "One\u2028two."}
    source = tmp_path / "docci_descriptions.jsonlines"
    source.write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    touch(tmp_path / "images/test_00000.jpg")
    assert list(found("docci", source).values()) == [("One\u2028two.",)]


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
