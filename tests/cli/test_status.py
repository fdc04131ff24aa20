"""``glit status``."""

from __future__ import annotations

import json

import pytest
from building import Counting, run_build


@pytest.fixture
def half_built(scenes, tmp_path):
    """Stopped after ingest and one chunk of captions."""
    with pytest.raises(KeyboardInterrupt):
        run_build(
            scenes / "images", tmp_path / "out", captions=scenes / "captions.jsonl",
            executor=Counting(3),
        )  # fmt: skip
    return tmp_path / "out"


def test_a_finished_dataset(built, run_glit):
    done = run_glit("status", built)
    assert done.code == 0
    assert done.output.splitlines()[0] == f"{built}: complete"
    assert done.output.splitlines()[-1] == ("24 ingested = 24 shipped + 0 dropped + 0 duplicates")
    found = json.loads(run_glit("status", built, "--json").output)
    assert (found["dataset"], found["complete"], found["recipe"]) == (str(built), True, "mini")


def test_a_build_that_was_stopped(half_built, run_glit):
    done = run_glit("status", half_built)
    assert done.code == 0
    first, *rest = done.output.splitlines()
    assert first == f"{half_built}: not finished; build again to go on"
    cells = [line.strip("│").split("│") for line in rest if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in cells][:3] == [
        ["ingest", "2/2", "24", "0"],
        ["caption", "1/2", "16", "0"],
        ["split", "0/2", "0", "0"],
    ]
    found = json.loads(run_glit("status", half_built, "--json").output)
    assert not found["complete"] and "counts" not in found
    assert [stage["chunks_done"] for stage in found["stages"]] == [2, 1, 0, 0, 0, 0]


def test_nothing_here(tmp_path, run_glit):
    done = run_glit("status", tmp_path)
    assert done.code == 2
    assert done.errors == f"glit: {tmp_path}: no dataset and no build here\n"
