"""Annotation files in the layouts their publishers ship."""

from __future__ import annotations

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from glit.cli.main import app
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


PHOTOS = "../DCI/dataset/densely_captioned_images/photos"
SEGMENTS = "../pipline/segment_with_background_DCI_test_set_max_0.01"


def write(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=4))
    return path


def test_goal_lists_with_the_paths_of_their_authors(tmp_path: Path) -> None:
    """The published paths lead nowhere; what counts is their longest tail that is there."""
    names = ["chage/path/to/your/directory/dataset/images/qual_test_00000.jpg"]
    names += ["chage/path/to/your/directoryUrban1k/image/1.jpg", f"{PHOTOS}/sa_7.jpg"]
    rows = [{"filename": name, "caption": f"Caption {i}. "} for i, name in enumerate(names)]
    source = write(tmp_path / "datasets/docci_test.json", rows)
    root = tmp_path / "data"
    places = ["qual_test_00000.jpg", "image/1.jpg", "densely_captioned_images/photos/sa_7.jpg"]
    for place in [*places, "1.jpg", "photos/sa_7.jpg"]:
        touch(root / place)
    wanted = {str(root / place): (f"Caption {i}.",) for i, place in enumerate(places)}
    assert found("goal", source, root) == wanted
    with pytest.raises(InputError, match=r"3 of 3 images are missing \(first: .*qual_test_00000"):
        found("goal", source)
    with pytest.raises(InputError, match=r"3 of 3 images are missing \(first: .*other/qual_test"):
        found("goal", source, tmp_path / "other")


def test_goal_entries_of_one_file_are_one_image(tmp_path: Path) -> None:
    rows = [{"filename": f"val2014/{i}.jpg", "caption": f"{i} {n}"} for n in "ab" for i in (1, 2)]
    for i in (1, 2):
        touch(tmp_path / f"{i}.jpg")
    source = write(tmp_path / "coco_test.json", rows)
    assert list(found("goal", source, tmp_path).values()) == [("1 a", "1 b"), ("2 a", "2 b")]


def joint_rows() -> list[dict]:
    """As published: whole images first, then their segments in another order."""
    wholes = [
        {"filename": f"{PHOTOS}/sa_{i}.jpg", "caption": f"First {i}. Second {i}."} for i in range(3)
    ]
    segments = [
        {
            "filename": f"{SEGMENTS}/sa_{i}.jpg_results/{name}",
            "caption": f"Second {i}",
            "similarity_score": 25.272022247314453,
        }
        for i, name in ((2, "sa_2_max_12.png"), (0, "original_image.jpg"), (1, "sa_1_max_3.png"))
    ]
    return wholes + segments


def test_a_joint_set_of_goal(tmp_path: Path) -> None:
    source = write(tmp_path / "DCI_test_joint_sim_max_11.json", joint_rows())
    root = tmp_path / "data"
    for i in range(3):
        touch(root / "photos" / f"sa_{i}.jpg")
    touch(root / "original_image.jpg")  # of which image it would be nobody knows
    with pytest.raises(InputError, match=r"2 of 6 images are missing \(first: .*sa_1_max_3.png\)"):
        found("goal-joint", source, root)
    for i, name in ((1, "sa_1_max_3.png"), (2, "sa_2_max_12.png")):
        touch(root / f"sa_{i}.jpg_results" / name)
    images = read_annotations("goal-joint", source, images=root, split=None)
    assert [image.captions for image in images] == [(f"First {i}. Second {i}.",) for i in range(3)]
    assert [[s.sentence for s in image.segments] for image in images] == [
        ["Second 0"],
        ["Second 1"],
        ["Second 2"],
    ]
    assert [str(s.path.relative_to(root)) for image in images for s in image.segments] == [
        "photos/sa_0.jpg",
        "sa_1.jpg_results/sa_1_max_3.png",
        "sa_2.jpg_results/sa_2_max_12.png",
    ]
    copy = touch(root / "sa_0.jpg_results/original_image.jpg")
    images = read_annotations("goal-joint", source, images=root, split=None, limit=1)
    assert [segment.path for segment in images[0].segments] == [copy]


def test_the_two_lists_of_goal_are_not_taken_for_each_other(tmp_path: Path) -> None:
    rows = joint_rows()
    source = write(tmp_path / "joint.json", rows)
    with pytest.raises(InputError, match="is a segment: read joint sets as goal-joint"):
        found("goal", source, tmp_path)
    for changed, message in (
        (rows[:3], "no segments: read lists of whole images as goal"),
        (rows[1:], "no whole image is called sa_0"),
        ([*rows, rows[0]], "two whole images are called like"),
        ([*rows[:-1], {**rows[-1], "caption": " "}], "sa_1_max_3.png has no text"),
    ):
        with pytest.raises(InputError, match=message):
            found("goal-joint", write(source, changed), tmp_path)


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
    tried = "docci dci dci-full urban1k coco flickr30k sharegpt4v iiw goal goal-joint"
    assert set(READERS) == set(tried.split())


def test_the_help_names_every_format() -> None:
    group: Any = typer.main.get_command(app)
    (option,) = [p for p in group.commands["eval"].params if "--format" in p.opts]
    assert re.findall(r"[\w-]+", option.help.replace(" or ", " ")) == ["glit", *READERS]
