"""COCO and Flickr30k in the layouts their publishers ship."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from annotations import found, touch

from glit.errors import InputError


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


def test_captions_of_images_that_coco_does_not_list_are_said(tmp_path: Path) -> None:
    source = tmp_path / "captions.json"
    source.write_text(
        json.dumps(
            {
                "images": [{"id": 3, "file_name": "3.jpg"}],
                "annotations": [{"image_id": i, "id": i, "caption": "c"} for i in (3, 4, 4, 5)],
            }
        )
    )
    touch(tmp_path / "3.jpg")
    with pytest.warns(UserWarning, match="3 captions are left out, of 2 images .* id 4"):
        assert list(found("coco", source, tmp_path).values()) == [("c",)]


@pytest.mark.parametrize(
    ("name", "parts"),
    [("coco", ["train", "restval", "val", "test"]), ("flickr30k", ["train", "val", "test"])],
)
def test_karpathy_splits(tmp_path: Path, name: str, parts: list[str]) -> None:
    """COCO's files sit in the folder of their year, Flickr's directly in the image folder."""
    folder = "val2014" if name == "coco" else ""
    entries = []
    for i, split in enumerate(parts):
        entry = {
            "filename": f"{i}.jpg",
            "imgid": i,
            "sentids": [2 * i, 2 * i + 1],
            "split": split,
            "sentences": [{"raw": f"{split} {i}.", "tokens": [split]}, {"raw": "second"}],
        }
        entries.append({**entry, "filepath": folder, "cocoid": i} if folder else entry)
        touch(tmp_path / "images" / folder / f"{i}.jpg")
    source = tmp_path / f"dataset_{name}.json"
    source.write_text(json.dumps({"images": entries, "dataset": name}))
    images, last = tmp_path / "images", len(parts) - 1
    test = {str(images / folder / f"{last}.jpg"): (f"test {last}.", "second")}
    assert found(name, source, images) == test
    assert list(found(name, source, images, "val+test").values())[1:] == list(test.values())
    with pytest.raises(InputError, match=f"no part 'dev'; known are {', '.join(parts)}"):
        found(name, source, images, "dev")


def test_flickr30k_token_file(tmp_path: Path) -> None:
    source = tmp_path / "results_20130124.token"
    source.write_text("1.jpg#0\tTwo men .\n1.jpg#1\tA yard .\n2.jpg#0\tA dog .\n")
    for i in (1, 2):
        touch(tmp_path / "flickr30k-images" / f"{i}.jpg")
    result = found("flickr30k", source, tmp_path / "flickr30k-images")
    assert list(result.values()) == [("Two men .", "A yard ."), ("A dog .",)]
