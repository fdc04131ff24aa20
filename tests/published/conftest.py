"""Published sets in small, for several of the tests here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from annotations import lines, touch
from building import png


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


@pytest.fixture()
def pictures(tmp_path) -> Path:
    """Two of 48 by 40 pixels."""
    for number, name in enumerate(["one.png", "two.png"]):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(seed=number))
    return tmp_path / "images"
