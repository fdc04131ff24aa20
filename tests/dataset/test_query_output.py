"""Answers as JSON: by DuckDB where it gives the same bytes, else by Python."""

import io
import json

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glit.dataset.query_output import _is_same_in_sql, _objects, _objects_in_sql, write_answer

TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\\\"'u/\0\x0b\x1fAF"))
VALUES = {
    "VARCHAR": TEXTS,
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-(2**7), 2**7 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "UBIGINT": st.integers(0, 2**64 - 1),
    "UINTEGER": st.integers(0, 2**32 - 1),
}


CONNECTION = duckdb.connect()


def _answer(sql):
    """The JSON of an answer, and whether DuckDB wrote it."""
    found, answer = CONNECTION.sql(sql).materialize(), io.BytesIO()
    write_answer(found, answer, "json")
    return answer.getvalue().decode(), _is_same_in_sql(found)


@st.composite
def _tables(draw):
    """Names, types and rows."""
    names = draw(st.lists(TEXTS.filter(bool), min_size=1, max_size=4, unique_by=str.casefold))
    kinds = [draw(st.sampled_from([*VALUES])) for _ in names]
    row = st.tuples(*(st.none() | VALUES[kind] for kind in kinds))
    return [name.replace("\0", "") or "x" for name in names], kinds, draw(st.lists(row, max_size=5))


@given(_tables())
def test_json_of_duckdb_is_that_of_python(table):
    names, kinds, rows = table
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(kinds))
    CONNECTION.execute(f"CREATE OR REPLACE TABLE t ({columns})")
    if rows:
        CONNECTION.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(kinds))})", rows)
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    chosen = ", ".join(f"c{number} AS {name}" for number, name in enumerate(quoted))
    found = CONNECTION.sql(f"SELECT {chosen} FROM t").materialize()
    assert _is_same_in_sql(found)
    by_python = b",\n".join(_objects(found))
    assert b",\n".join(_objects_in_sql(found)) == by_python
    assert len(by_python.splitlines()) == len(rows)


def test_every_control_character():
    texts = [{"c": f"{chr(number)}\\u000B\\"} for number in range(1, 200)]
    lines = ",\n".join(json.dumps(text, ensure_ascii=False) for text in texts)
    sql = "SELECT chr(i::INTEGER) || '\\u000B\\' AS c FROM range(1, 200) t(i)"
    assert _answer(sql) == (f"[\n{lines}\n]\n", True)


def test_rows_stay_in_order():
    answer, by_duckdb = _answer("SELECT i, 'x' || i AS text FROM range(300_000) t(i)")
    rows = json.loads(answer)
    assert by_duckdb and [row["i"] for row in rows] == [*range(300_000)]
    assert rows[-1] == {"i": 299_999, "text": "x299999"}


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("'nan'::DOUBLE", None),
        ("0.1::FLOAT", 0.10000000149011612),
        ("1e16::DOUBLE", 1e16),
        ("'\\xFF'::BLOB", "/w=="),
        ("DATE '2026-11-28'", "2026-11-28"),
        ("5::HUGEINT", 5),
        ("sum(9007199254740993::BIGINT)", 9007199254740993),
        ("1.50::DECIMAL(5, 2)", 1.5),
        ("[2.5::DECIMAL(5, 1)]", [2.5]),
        ("[1, NULL]", [1, None]),
        ("{'a': 'x', 'b': [1.5::DOUBLE]}", {"a": "x", "b": [1.5]}),
        ("'[1]'::JSON", "[1]"),
        ("NULL", None),
    ],
)
def test_other_types_are_written_by_python(sql, value):
    line = json.dumps({"value": value, "one": 1})
    assert _answer(f"SELECT {sql} AS value, 1 AS one") == (f"[\n{line}\n]\n", False)


def test_no_rows():
    assert _answer("SELECT 1 AS a LIMIT 0") == ("[\n]\n", True)
