"""``glit retry``."""

from __future__ import annotations

import json
import shutil

import pytest


@pytest.fixture
def with_a_drop(scenes, tmp_path, run_glit):
    """A dataset of four scenes whose first could not be read; its picture comes later."""
    images = tmp_path / "images"
    images.mkdir()
    for number in range(4):
        shutil.copy(scenes / "images" / f"{number:06d}.png", images)
    shutil.move(images / "000000.png", tmp_path / "later.png")
    (images / "000000.png").symlink_to(tmp_path / "nowhere.png")
    done = run_glit(
        "build", images, "-o", tmp_path / "out", "-r", "mini", "--executor", "local",
        "--captions", scenes / "captions.jsonl",
    )  # fmt: skip
    assert "1 ingest/unreadable" in done.output
    return tmp_path / "out"


def test_what_comes_back_is_counted(with_a_drop, tmp_path, run_glit):
    shutil.move(tmp_path / "later.png", tmp_path / "nowhere.png")
    done = run_glit("retry", with_a_drop, "--executor", "local", "--json")
    assert done.code == 0
    assert json.loads(done.output) == {
        "dataset": str(with_a_drop),
        "counts": {"ingested": 4, "shipped": 4, "dropped": 0, "duplicates": 0, "drops": {}},
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--stage", "propse"], "--stage 'propse': want one of ingest, caption,"),
        (["--reason", "bad"], "--reason 'bad': want one of "),
    ],
)
def test_names_that_do_not_exist(built, run_glit, words, message):
    done = run_glit("retry", built, "--executor", "local", *words)
    assert done.code == 2 and done.errors.startswith(f"glit: {message}")


def test_after_clean_there_is_nothing_to_retry(built_copy, run_glit):
    shutil.rmtree(built_copy / "work")
    done = run_glit("retry", built_copy, "--executor", "local")
    assert done.code == 2
    assert done.errors == (
        f"glit: {built_copy}: its work folder is gone (glit clean); build it anew instead\n"
    )
