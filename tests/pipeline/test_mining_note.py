"""The line at the end of a build on pictures that forbid data mining or training."""

from __future__ import annotations

import shutil

import pytest
from adding import Notes, run_add
from building import Counting, run_build
from noticed import NOTICES, noticed, picture

from glit.pipeline.executors.local import LocalExecutor
from glit.pipeline.mining_note import mining_note, note_mining
from glit.pipeline.planning.recipe import load_recipe
from glit.pipeline.retry import retry

OVERRIDES = ["caption.backend=sidecar", "ingest.chunk_size=3"]
HOW = " (--set rights.enabled=true says which, --set 'rights.drop=[\"mining_prohibited\"]' leaves them out)"


def put(folder, numbers, forbidding):
    folder.mkdir(exist_ok=True)
    for number in numbers:
        data = picture(seed=number)
        (folder / f"{number}.jpg").write_bytes(
            noticed(data, NOTICES) if number in forbidding else data
        )
        (folder / f"{number}.txt").write_text("A red circle. A blue square.")


@pytest.fixture
def images(tmp_path):
    """Seven pictures, two of which forbid it; a copy of one of these, and a file that is no picture."""
    put(tmp_path / "in", range(7), {1, 5})
    for suffix in (".jpg", ".txt"):
        shutil.copy(tmp_path / f"in/5{suffix}", tmp_path / f"in/copy{suffix}")
    (tmp_path / "in/bad.jpg").write_bytes(b"no picture")
    return tmp_path / "in"


def build_notes(images, output, **how):
    notes = Notes()
    run_build(images, output, recipe="captions-only", overrides=OVERRIDES, progress=notes, **how)
    return [each for each in notes.told if "data mining" in each]


def test_a_build_and_the_same_command_again(images, tmp_path):
    said = f"2 of 7 pictures forbid data mining or training{HOW}"
    assert build_notes(images, tmp_path / "out") == [said]
    assert build_notes(images, tmp_path / "out") == [said]


@pytest.mark.parametrize("stop_after", [2, 4, 12])
def test_a_build_that_was_stopped_and_goes_on(images, tmp_path, stop_after):
    with pytest.raises(KeyboardInterrupt):
        build_notes(images, tmp_path / "out", executor=Counting(stop_after))
    assert build_notes(images, tmp_path / "out") == [
        f"2 of 7 pictures forbid data mining or training{HOW}"
    ]


def test_an_addition(images, tmp_path):
    build_notes(images, tmp_path / "out")
    put(images, range(10, 13), {11})
    notes = Notes()
    run_add(tmp_path, progress=notes)
    assert f"3 of 10 pictures forbid data mining or training{HOW}" in notes.told


def test_a_retry_keeps_the_counts_of_other_rows(images, tmp_path):
    build_notes(images, tmp_path / "out")
    (images / "bad.jpg").write_bytes(noticed(picture(seed=99), NOTICES))
    (images / "bad.txt").write_text("A red circle.")
    notes = Notes()
    retry(str(tmp_path / "out"), LocalExecutor(), notes)
    assert f"3 of 8 pictures forbid data mining or training{HOW}" in notes.told


def test_lines():
    off, on = load_recipe("mini"), load_recipe("mini", overrides=["rights.enabled=true"])
    notes = Notes()
    note_mining(notes, {"unstated": 3, "allowed": 1}, off)
    assert notes.told == []
    assert mining_note({"unreadable": 1200, "unstated": 10_000}, on) == (
        "0 of 11,200 pictures forbid data mining or training; of 1,200 the metadata cannot be read"
    )
    assert mining_note({"prohibited": 1, "unstated": 1}, on).endswith(
        "(the column rights says which, --set 'rights.drop=[\"mining_prohibited\"]' leaves them out)"
    )
