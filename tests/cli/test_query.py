"""``glit query``."""

from __future__ import annotations

import csv
import json

import pyarrow.parquet as pq
import pytest


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


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select capton from samples", "no column 'capton', did you mean 'caption'? columns: "),
        ("select p.similarty from pairs p", "'similarty', did you mean 'similarity'? columns: "),
        ("select xyzzy from drops", "no column 'xyzzy'; columns: sample_id, source_path, stage, "),
    ],
)
def test_an_unknown_column_is_told_with_those_that_are_there(built, run_glit, sql, said):
    done = run_glit("query", built, sql)
    assert done.code == 2 and said in done.errors and done.errors.count("\n") == 1


def test_a_dataset_that_lost_a_file_is_one_line(built_copy, run_glit):
    sorted((built_copy / "data").iterdir())[0].unlink()
    done = run_glit("query", built_copy, "select count(*) from samples")
    assert done.code == 1
    assert "is in the manifest but not on disk" in done.errors and done.errors.count("\n") == 1


SQL = r"""select source_path, width, len(sentences) > 0 as some, 'nan'::float as odd, regions[1] as first,
         '\xff'::blob as data, null as none from samples order by source_path"""


@pytest.mark.parametrize("num", [0, 1, 2048, 5000])
def test_rows_of_any_number_of_batches(built, run_glit, num):
    sql = f"select range as n, range / 2 as half, [range] as some from range({num})"
    done = run_glit("query", built, sql, "--json")
    wanted = [{"n": n, "half": n / 2, "some": [n]} for n in range(num)]
    assert json.loads(done.output) == wanted and done.output.count("\n") == num + 2
    done = run_glit("query", built, sql, "--format", "csv")
    rows = [[str(n), str(n / 2), f"[{n}]"] for n in range(num)]
    assert [*csv.reader(done.output.splitlines())] == [["n", "half", "some"], *rows]


def test_every_format_has_every_row(built, run_glit, tmp_path):
    for form in ("csv", "json", "parquet"):
        done = run_glit("query", built, SQL, "-o", tmp_path / f"rows.{form}")
        assert done.code == 0 and done.output.startswith("24 rows: "), done.errors
    other = run_glit("query", built, SQL, "--json", "-o", tmp_path / "rows.csv")
    assert other.code == 2 and "is a csv file, but json is asked for" in other.errors
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert rows[3]["source_path"] == "000003.png" and rows[3]["some"] is True
    assert rows[3]["odd"] is None and rows[3]["data"] == "/w==" and rows[3]["none"] is None
    with (tmp_path / "rows.csv").open(newline="") as file:
        cells = list(csv.DictReader(file))
    assert [row["source_path"] for row in cells] == [row["source_path"] for row in rows]
    assert json.loads(cells[3]["first"]) == rows[3]["first"] and cells[3]["none"] == ""
    table = pq.read_table(tmp_path / "rows.parquet")
    assert table.column("source_path").to_pylist() == [row["source_path"] for row in rows]
    assert table.column("first").to_pylist()[3]["x0"] == rows[3]["first"]["x0"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "rows.csv", "rows.json", "rows.parquet"
    ]  # fmt: skip


def test_columns_of_one_name_are_told_apart(built, run_glit):
    done = run_glit("query", built, "select 1 as a, 2 as a", "--json")
    assert sorted(json.loads(done.output)[0].values()) == [1, 2]


def test_csv_on_the_terminal(built, run_glit):
    done = run_glit("query", built, "select 1 as a, 'x,\"y\"' as b", "--format", "csv")
    assert (done.code, done.output) == (0, 'a,b\n1,"x,""y"""\n')


def test_what_cannot_be_written(built, run_glit, tmp_path):
    for words, said in [
        (["-o", tmp_path / "rows.txt"], "ends in .csv, .json or .parquet"),
        (["-o", tmp_path], "it is a folder"),
        (["-o", "/proc/nothing/rows.csv"], "cannot write there"),
        (["--format", "table", "-o", tmp_path / "rows.csv"], "but table is asked for"),
        (["--json", "--format", "csv"], "contradict each other"),
    ]:
        done = run_glit("query", built, "select 1 as a", *words)
        assert done.code == 2 and said in done.errors and done.errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
