"""A messy folder, and what its check tells of a dataset of it."""

from __future__ import annotations

import json

import pytest
from building import quiet, run_build

from glit.curate.references import Wanted, write_references
from tools.messy import FATES, check, make, meant


@pytest.mark.slow
def test_a_clean_dataset_lacks_what_is_messy_and_nothing_else(photographs, tmp_path):
    make(photographs, tmp_path / "messy", captions=None, seed=0)
    assert {path.name for path in (tmp_path / "messy" / "images").iterdir()} == {
        *json.loads((tmp_path / "messy" / "truth.json").read_text())
    }
    listed = tmp_path / "test.parquet"
    write_references(Wanted(images=str(tmp_path / "messy" / "test-set")), listed, quiet())
    run_build(
        tmp_path / "messy" / "images", tmp_path / "clean",
        captions=tmp_path / "messy" / "captions.jsonl",
        overrides=["ingest.min_side=64", "ingest.near_duplicates=6", "exclude.enabled=true",
                   f'exclude.lists=["{listed}"]', "quality.enabled=true",
                   "quality.min_sharpness=50", "quality.max_aspect=4"],
    )  # fmt: skip
    fates, reasons = check(tmp_path / "messy", str(tmp_path / "clean"))
    gone = {row["fate"]: (row["gone"], row["images"]) for row in fates}
    assert gone.pop("good")[0] == 0 and len(gone) == len(set(FATES)) - 1
    assert all(left == number > 0 for left, number in gone.values())
    assert {row["reason"] for row in reasons} == {meant(fate) for fate in FATES} - {""}
    assert all(row["right"] == row["dropped"] for row in reasons)


def test_without_filters_it_says_what_stays(photographs, tmp_path):
    some = tmp_path / "some"
    some.mkdir()
    for path in sorted(photographs.glob("*.jpg"))[: len(FATES)]:
        (some / path.name).write_bytes(path.read_bytes())
    make(some, tmp_path / "messy", captions=None, seed=1)
    run_build(
        tmp_path / "messy" / "images", tmp_path / "all",
        captions=tmp_path / "messy" / "captions.jsonl",
    )  # fmt: skip
    fates, reasons = check(tmp_path / "messy", str(tmp_path / "all"))
    gone = {row["fate"] for row in fates if row["gone"]}
    assert gone == {"broken", "double same"}  # of equal files ingest takes one
    assert {row["reason"] for row in reasons} == {"corrupt", "duplicate"}
