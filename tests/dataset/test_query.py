"""SQL over a dataset."""

from __future__ import annotations

import gc
import re
import shutil
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import glit
from glit.dataset.query import check_select, connect, open_connection, query
from glit.dataset.reader import Dataset
from glit.dataset.select import select, split_rows
from glit.errors import DatasetError, UserError
from glit.view.search import Search


def test_query_and_its_mistakes(built):
    assert query(str(built), "select count(*) from samples").fetchall() == [(24,)]
    assert query(str(built), "select count(*) from drops").fetchall() == [(0,)]
    with pytest.raises(
        UserError, match="views: samples, sentences, regions, pairs, drops, duplicates"
    ):
        query(str(built), "select * from nothing")


def test_views_hold_one_row_a_thing(built):
    def one(sql):
        return query(str(built), sql).fetchall()[0][0]

    dataset = Dataset(built)
    rows = list(dataset.rows(images=False))
    assert one("SELECT count(*) FROM sentences") == sum(len(row.sentences) for row in rows)
    assert one("SELECT count(*) FROM regions") == sum(len(row.regions) for row in rows)
    assert one("SELECT count(*) FROM pairs") == sum(len(row.pairs) for row in rows)
    row = rows[5]
    found = query(
        str(built),
        f"""SELECT rank, text, x0, y0, x1, y1, label, similarity FROM pairs
            WHERE sample_id = '{row.sample_id}' ORDER BY rank""",
    ).fetchall()
    for (rank, text, *box, label, similarity), pair in zip(found, row.pairs, strict=True):
        assert pair is row.pairs[rank] and text == row.sentences[pair.sentence].text
        assert tuple(box) == row.regions[pair.region].box.xyxy
        assert (label, similarity) == (row.regions[pair.region].label, pair.similarity)
    texts = query(
        str(built),
        f"""SELECT sentence, text, image_similarity FROM sentences
            WHERE sample_id = '{row.sample_id}' ORDER BY sentence""",
    ).fetchall()
    assert [text for _, text, _ in texts] == [sentence.text for sentence in row.sentences]
    assert [value for _, _, value in texts] == row.image_similarity.tolist()


HIDDEN = "word that is in no dataset"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('{outside}')",
        "SELECT * FROM read_blob('{inside}/../outside.txt')",
        "SELECT * FROM read_csv('{outside}', header = false)",
        "SELECT * FROM '{outside}'",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM sniff_csv('{outside}')",
        "SELECT * FROM parquet_metadata('{folder}/other.parquet')",
        "SELECT * FROM read_parquet('{inside}/data/*.parquet')",
        "SELECT * FROM read_json('{inside}/manifest.json')",
        "SELECT * FROM query('SELECT * FROM read_text(''{outside}'')')",
        "SELECT * FROM query_table('{outside}')",
        "SELECT * FROM read_parquet('http://127.0.0.1:9/x.parquet')",
        "SELECT getenv('HOME')",
        "SELECT * FROM secret",
        "COPY (SELECT 1) TO '{folder}/new.csv'",
        "COPY (SELECT 1 AS a) TO '{data}' (FORMAT parquet)",
        "EXPLAIN ANALYZE COPY (SELECT 1 AS a) TO '{data}' (FORMAT parquet)",
        "ATTACH '{folder}/new.db'",
        "EXPORT DATABASE '{folder}/all'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET allowed_paths = ['{outside}']",
        "RESET lock_configuration",
        "PRAGMA database_list",
        "CREATE TABLE t AS SELECT 1",
        "DROP VIEW samples",
        "SELECT 1; SELECT 2",
        "",
        "SELECT * FROM query('WITH x AS (COPY (SELECT 1) TO ''{data}'') FROM x')",
        "SELECT * FROM json_execute_serialized_sql('')",
        "SELECT * FROM system.main.duckdb_settings()",
        "SELECT * FROM (SELECT * FROM glob('{data}'))",
        "CALL enable_logging(storage = 'file', storage_config = {{'path': '{folder}/log'}})",
        "SELECT * FROM enable_logging(storage_path => '{folder}/log')",
    ],
)
def test_nothing_else_is_in_reach(built_copy, tmp_path, sql):
    secret = pa.table({"hidden": [HIDDEN]})  # which DuckDB would find by this name
    pq.write_table(secret, tmp_path / "other.parquet")
    (tmp_path / "outside.txt").write_text(HIDDEN)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    words = sql.format(
        outside=tmp_path / "outside.txt", folder=tmp_path, inside=built_copy,
        data=next((built_copy / "data").iterdir()),
    )  # fmt: skip
    with pytest.raises(UserError) as caught:
        query(str(built_copy), words)
    assert HIDDEN not in str(caught.value)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


WRITES = (
    "COPY (SELECT 1 AS a) TO '{data}' (FORMAT parquet)",
    "COPY samples TO '{folder}/new.csv'",
    "INSERT INTO drops VALUES (1) RETURNING *",
    "UPDATE samples SET caption = '' RETURNING *",
    "DELETE FROM samples RETURNING *",
    "MERGE INTO samples USING drops ON true WHEN MATCHED THEN DELETE RETURNING *",
)
PLACES = (
    "WITH x AS ({write}) SELECT * FROM x",
    "WITH x AS MATERIALIZED ({write}) SELECT 1",
    "WITH RECURSIVE x AS ({write}) SELECT 1",
    "SELECT (WITH x AS ({write}) SELECT 1)",
    "SELECT * FROM (WITH x AS ({write}) SELECT 1)",
    "SELECT 1 UNION WITH x AS ({write}) SELECT 1",
    "SELECT 1 WHERE EXISTS (WITH x AS ({write}) SELECT 1)",
    "SELECT 1 ORDER BY (WITH x AS ({write}) SELECT 1)",
    "SELECT list_transform([1], y -> (WITH x AS ({write}) SELECT 1))",
    "SELECT * FROM samples, LATERAL (WITH x AS ({write}) SELECT 1)",
    "SELECT * FROM ({write})",
    "FROM ({write}) SELECT 1",
    "SUMMARIZE (WITH x AS ({write}) SELECT 1)",
    "DESCRIBE WITH x AS ({write}) SELECT 1",
    "EXPLAIN ANALYZE WITH x AS ({write}) SELECT 1",
)


@pytest.mark.slow
def test_what_writes_is_refused_wherever_it_stands(built_copy, tmp_path):
    """DuckDB calls a statement a SELECT even if it overwrites a file on the way."""
    data = next((built_copy / "data").iterdir())
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    dataset = Dataset(built_copy)
    for write in WRITES:
        body = write.format(data=data, folder=tmp_path)
        for place in PLACES:
            with pytest.raises(UserError):
                query(str(built_copy), place.format(write=body))
        inside = f"EXISTS (WITH x AS ({body}) SELECT 1)"
        with connect(dataset) as connection, pytest.raises(UserError):
            select(dataset, connection, where=inside)
        with connect(dataset) as connection, pytest.raises(UserError):
            select(dataset, connection, where="", most=2, by=inside)
        with connect(dataset) as connection, pytest.raises(UserError):
            split_rows(dataset, connection, [0, 1], {"a": 0.5, "b": 0.5}, together=inside)
        with pytest.raises(UserError):
            Search(dataset, where=inside)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_every_table_function_that_reads_other_files_or_runs_sql_is_refused(built):
    listed = duckdb.sql(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type LIKE 'table%'"
    ).fetchall()
    taken, connection = set(), open_connection(Dataset(str(built)))
    for (name,) in listed:
        try:
            check_select(f"SELECT * FROM {name}('x')", connection)
        except UserError:
            continue
        taken.add(name)
    assert taken <= {
        "unnest", "range", "generate_series", "repeat", "repeat_row", "json_each", "json_tree",
        "read_parquet", "parquet_scan", "histogram", "histogram_values", "summary",
    }  # fmt: skip
    assert query(str(built), "SELECT sum(x) FROM range(4) t(x)").fetchall() == [(6,)]


def test_a_result_that_spills_does_so_where_nobody_else_reads_and_leaves_nothing(built):
    connection = open_connection(Dataset(built))
    (folder,) = connection.execute("SELECT current_setting('temp_directory')").fetchone()
    assert Path(folder).stat().st_mode & 0o777 == 0o700
    other = open_connection(Dataset(built))
    assert other.execute("SELECT current_setting('temp_directory')").fetchone() != (folder,)
    del connection
    gc.collect()
    assert not Path(folder).exists()


def test_a_file_that_duckdb_cannot_read_is_one_line(built_copy):
    """pyarrow may take a footer that DuckDB refuses; this one both refuse."""
    (built_copy / "drops.parquet").write_bytes(b"PAR1" * 30)
    with pytest.raises(DatasetError, match="its rows cannot be counted .*run 'glit verify'"):
        open_connection(Dataset(built_copy))


def test_pages_that_decode_to_much_are_refused(built, monkeypatch):
    monkeypatch.setattr("glit.data.bounded_parquet.IMAGES_BYTES", 1000)
    for open_it in (lambda: query(str(built), "SELECT 1"), lambda: open_connection(Dataset(built))):
        with pytest.raises(DatasetError, match=r"train-00000.*: row group 0 decodes to \d+ MB"):
            open_it()


def test_folders_named_like_columns_change_no_column(built, tmp_path):
    """DuckDB and Arrow take ``key=value`` in a path for a column, in place of the file's own."""
    folder = tmp_path / "width=7" / "stage=here" / "run[1]*?"
    shutil.copytree(built, folder)
    dataset = Dataset(str(folder))
    assert query(str(folder), "SELECT DISTINCT width FROM samples").fetchall() == [(128,)]
    assert query(str(folder), "SELECT count(*) FROM drops WHERE stage = 'here'").fetchall() == [
        (0,)
    ]
    chosen = select(dataset, open_connection(dataset), where="width = 128")
    assert chosen.matching == len(dataset)


READS_PARQUET = re.compile(r"read_parquet\((?!hive)[^()]*(?:\([^()]*\)[^()]*)*\)")


def test_no_source_lets_duckdb_read_columns_from_paths():
    calls = [
        call
        for path in Path(glit.__file__).parent.rglob("*.py")
        for call in READS_PARQUET.findall(path.read_text(encoding="utf-8"))
    ]
    assert len(calls) >= 8
    assert [each for each in calls if "hive_partitioning" not in each] == []


def test_a_sentence_without_a_region_has_no_box(built, tmp_path):
    glit.pair(built, tmp_path / "new", settings=["pair.rule=lism"])
    rows = query(
        str(tmp_path / "new"),
        "SELECT global_wins, count(*), count(x0), count(label), count(source) FROM pairs GROUP BY ALL",
    ).fetchall()
    for wins, number, *others in rows:
        assert others == ([0] * 3 if wins else [number] * 3)
    assert {wins for wins, *_ in rows} == {True, False}
