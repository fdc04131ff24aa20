"""``glit status``."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from building import Counting, edit_state, run_build

from glit.pipeline.status import build_words, shell_line


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
    assert first == f"{half_built}: not finished; run glit build again to resume"
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


def test_tables_of_stages_that_this_glit_does_not_have_come_last(built_copy, run_glit):
    edit_state(
        built_copy / "work",
        lambda state: state.update(folders={"match": state["folders"]["pair"], **state["folders"]}),
    )
    stages = json.loads(run_glit("status", built_copy, "--json").output)["stages"]
    assert [stage["stage"] for stage in stages][-2:] == ["pair", "match"]
    assert stages[-1]["rows"] == 24


@pytest.mark.parametrize("content", [b"no parquet", None], ids=["damaged", "without counts"])
def test_a_table_that_is_not_ours_is_one_line(built_copy, run_glit, content):
    table = sorted((built_copy / "work").glob("score-*/*.parquet"))[0]
    if content is None:
        pq.write_table(pq.read_table(table).replace_schema_metadata(None), table)
    else:
        table.write_bytes(content)
    done = run_glit("status", built_copy)
    assert done.code == 2 and done.errors.count("\n") == 1
    assert done.errors.startswith(f"glit: {table}: damaged (")


def test_other_files_beside_the_tables_are_not_counted(built_copy, run_glit):
    folder = sorted((built_copy / "work").glob("score-*"))[0]
    (folder / "notes.parquet").write_bytes(b"mine")
    stages = json.loads(run_glit("status", built_copy, "--json").output)["stages"]
    assert [stage["chunks_done"] for stage in stages] == [2] * 6


def test_a_secret_is_not_in_the_command_that_resumes():
    for words in (
        {"settings": ["caption.endpoint=http://me:pw@host/v1"]},
        {"settings": ["caption.api_key=sk-1"]},
        {"captions": "https://host/captions.csv?signature=1"},
    ):
        assert build_words("in", "out", "mini", **words) == ()
    kept = build_words("in", "out", "mini", settings=["caption.api_key_env=MY_KEY"], limit=3)
    assert shell_line(kept) == (
        "glit build in -o out -r mini --set caption.api_key_env=MY_KEY --limit 3"
    )
