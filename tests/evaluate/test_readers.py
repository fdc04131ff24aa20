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


def found(name: str, source: Path, images: Path | None = None, split: str | None = None) -> dict:
    return {
        str(image.path): image.captions
        for image in read_annotations(name, source, images=images, split=split)
    }


def lines(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture()
def docci(tmp_path: Path) -> Path:
    """DOCCI in small: one image of training, two of the test, one of the qualification test."""
    parts = ["train", "test", "qual_dev", "qual_test", "test"]
    for i, split in enumerate(parts):
        touch(tmp_path / "images" / f"{split}_0000{i}.jpg")
    return lines(
        tmp_path / "docci_descriptions.jsonlines",
        [
            {
                "example_id": f"{split}_0000{i}",
                "split": split,
                "image_file": f"{split}_0000{i}.jpg",
                "description": f"Description {split} {i}.",
            }
            for i, split in enumerate(parts)
        ],
    )


def test_docci(docci: Path) -> None:
    assert found("docci", docci) == {
        str(docci.parent / "images/test_00001.jpg"): ("Description test 1.",),
        str(docci.parent / "images/test_00004.jpg"): ("Description test 4.",),
    }


def test_parts_together(docci: Path) -> None:
    both = found("docci", docci, split="test+qual_test")
    assert list(both.values()) == [
        ("Description test 1.",),
        ("Description qual_test 3.",),
        ("Description test 4.",),
    ]
    assert both == found("docci", docci, split="qual_test+test+test")
    collection = open_collection(str(docci), EvaluateConfig(), kind="docci", split="test+qual_test")
    assert collection.name == "docci test+qual_test"
    with pytest.raises(InputError, match="no part 'qual-test'; known are train, test, qual_dev"):
        found("docci", docci, split="test+qual-test")


@pytest.fixture()
def dci(tmp_path: Path) -> Path:
    """DCI in small: two images of training, one of validation, one of the test."""
    root = tmp_path / "densely_captioned_images"
    for i, extra in enumerate(["Long 0.", "", "Long 2.", "Long 3."]):
        values = {
            "image": f"sa_{i}.jpg",
            "short_caption": f"Short {i}.",
            "mask_data": {"0": {"idx": "0", "caption": "Of a mask.", "parent": -1}},
            "mask_keys": ["0"],
            "extra_caption": extra,
        }
        path = root / "annotations" / f"11295{i}-data.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
        touch(root / "photos" / f"sa_{i}.jpg")
    names = [f"11295{i}-data.json" for i in range(4)]
    parts = {"train": names[:2], "valid": names[2:3], "test": names[3:]}
    (root / "splits.json").write_text(json.dumps(parts))
    return root


def test_dci_takes_the_long_caption_and_leaves_out_images_without_one(dci: Path) -> None:
    assert list(found("dci", dci).values()) == [("Long 3.",)]
    assert list(found("dci", dci, split="test+train").values()) == [("Long 0.",), ("Long 3.",)]
    for split in ("all", "train+valid+test"):
        every = found("dci", dci, split=split)
        assert list(every.values()) == [("Long 0.",), ("Long 2.",), ("Long 3.",)]
    with pytest.raises(InputError, match="no part 'val'; known are train, valid, test, all"):
        found("dci", dci, split="val")
    (dci / "splits.json").unlink()
    with pytest.raises(InputError, match=r"not the dci annotations as published .*splits.json"):
        found("dci", dci)


def test_dci_full_is_both_captions_of_every_image(dci: Path) -> None:
    assert list(found("dci-full", dci, split="all").values()) == [
        ("Short 0.\nLong 0.",),
        ("Short 1.",),
        ("Short 2.\nLong 2.",),
        ("Short 3.\nLong 3.",),
    ]


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
    kept = read_annotations("sharegpt4v", source, images=None, split=None, limit=1)
    assert [image.path.name for image in kept] == ["sa_1.jpg"]


def test_a_long_array_is_read_no_further_than_asked(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(files, "CHUNK", 100)
    source = tmp_path / "share.json"
    source.write_text(json.dumps(conversations(9), indent=1)[:-300])
    touch(tmp_path / "sam/images/sa_0.jpg")
    kept = read_annotations("sharegpt4v", source, images=None, split=None, limit=1)
    assert kept[0].captions == ('Caption 0. It has [brackets], "quotes" and {}.',)
    with pytest.raises(InputError, match="not the sharegpt4v annotations as published"):
        read_annotations("sharegpt4v", source, images=None, split=None)


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


@pytest.fixture()
def imageinwords(tmp_path: Path) -> Path:
    """The three parts people wrote, one image each, beside one that was generated."""
    for part, row in {
        "IIW-400": {"image/key": "aar_test_04600", "IIW": "Of AAR.", "objects": []},
        "DCI_Test": {"image": "sa_1545038.jpg", "ex_id": "113029-data.json", "IIW": "Of DCI."},
        "DOCCI_Test": {"image": "test_00731", "DOCCI": "Older.", "IIW": "Of DOCCI."},
        "LocNar_Eval": {"image/key": "000a1249af2bc5f0", "IIW-P5B": "Generated."},
    }.items():
        lines(tmp_path / "datasets" / part / "data.jsonl", [row])
    return tmp_path / "datasets"


def test_iiw_together_and_in_parts(imageinwords: Path, tmp_path: Path) -> None:
    images = tmp_path / "IIW"
    placed = ["docci/test_00731.jpg", "docci_aar/aar_test_04600.jpg", "dci/sa_1545038.jpg"]
    for name in placed:
        touch(images / name)
    captions = [("Of DOCCI.",), ("Of AAR.",), ("Of DCI.",)]
    together = found("iiw", imageinwords, images)
    assert together == dict(zip((str(images / name) for name in placed), captions, strict=True))
    assert list(found("iiw", imageinwords, images, "IIW-400").values()) == captions[1:2]
    for name in placed:
        touch(tmp_path / "flat" / Path(name).name)
    assert list(found("iiw", imageinwords, tmp_path / "flat").values()) == captions
    with pytest.raises(InputError, match="no part 'LocNar_Eval'; known are DOCCI_Test, IIW-400"):
        found("iiw", imageinwords, images, "LocNar_Eval")


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
    assert set(READERS) == {
        "docci",
        "dci",
        "dci-full",
        "urban1k",
        "coco",
        "flickr30k",
        "sharegpt4v",
        "iiw",
    }
