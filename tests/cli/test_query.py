"""``glit query``."""

from __future__ import annotations

import json


def test_rows_as_json(built, run_glit):
    sql = "select source_path, width from samples order by source_path limit 2"
    done = run_glit("query", built, sql, "--json")
    assert done.code == 0
    assert json.loads(done.output) == [
        {"source_path": "000000.png", "width": 128},
        {"source_path": "000001.png", "width": 128},
    ]


def test_a_table_for_people(built, run_glit):
    done = run_glit("query", built, "select count(*) as images from samples")
    cells = [line.strip("│ ") for line in done.output.splitlines() if "│" in line]
    assert (done.code, cells[0], cells[-1]) == (0, "images", "24")


def test_a_mistake_is_one_line(built, run_glit):
    done = run_glit("query", built, "select nothing from samples")
    assert done.code == 2 and done.output == ""
    assert done.errors.startswith("glit: query: ") and done.errors.count("\n") == 1


def test_a_dataset_that_lost_a_file_is_one_line(built_copy, run_glit):
    sorted((built_copy / "data").iterdir())[0].unlink()
    done = run_glit("query", built_copy, "select count(*) from samples")
    assert done.code == 1
    assert "is in the manifest but not on disk" in done.errors and done.errors.count("\n") == 1
