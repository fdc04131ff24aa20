"""DOCCI, DCI, Urban1k, ShareGPT4V and ImageInWords in the layouts their publishers ship."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from annotations import found, lines, touch

from glit.errors import InputError
from glit.evaluation.collection import open_collection
from glit.evaluation.config import EvaluateConfig


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
