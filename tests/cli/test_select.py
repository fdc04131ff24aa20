"""``glit select`` and ``glit merge``."""

from __future__ import annotations

import pytest


def test_select_split_and_merge(built, tmp_path, run_glit):
    some, parts, back = tmp_path / "some", tmp_path / "parts", tmp_path / "back"
    done = run_glit("select", built, "-o", some, "--sample", 8, "--by", "len(pairs)", "--seed", 4)
    assert (done.code, done.output) == (0, f"8 images: {some}\n")
    done = run_glit("select", built, "-o", parts, "--split", "train=0.75,val=0.25")
    assert done.code == 0 and done.output.splitlines() == [
        f"18 images: {parts}/train",
        f"6 images: {parts}/val",
        f"{built} was built without ingest.near_duplicates: images that look the same may be in "
        "different parts; --near 6 keeps them in one",
    ]
    done = run_glit("merge", parts / "train", parts / "val", some, "-o", back)
    assert (done.code, done.output) == (0, f"24 images (8 repeated): {back}\n")
    for folder in (some, parts / "train", parts / "val", back):
        assert run_glit("verify", folder).code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--where", "width < 0"], "--where width < 0: none of 24 samples meets this condition"),
        (["--split", "train=0.5,train=0.5"], "found 'train=0.5'; want NAME=SHARE"),
        (["--split", "train"], "found 'train'; want NAME=SHARE"),
        (["--split", ""], "found ''; want NAME=SHARE"),
        (["--split", "a=nan,b=1"], "--split a=nan: want a share above 0"),
        (["--together", "width"], "--together width: is for --split"),
    ],
)
def test_what_cannot_be_selected_is_one_line(built, tmp_path, run_glit, words, said):
    done = run_glit("select", built, "-o", tmp_path / "new", *words)
    assert done.code == 2 and said in done.errors and done.errors.count("\n") == 1
    assert [*tmp_path.iterdir()] == []


def test_a_dataset_alone_or_twice_is_not_merged(built, tmp_path, run_glit):
    done = run_glit("merge", built, "-o", tmp_path / "new")
    assert done.code == 2 and "want two datasets or more" in done.errors
    done = run_glit("merge", built, f"{built}/", "-o", tmp_path / "new")
    assert done.code == 2 and "the same dataset as" in done.errors
    assert [*tmp_path.iterdir()] == []
