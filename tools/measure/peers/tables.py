"""SQL and exports over a dataset of a million rows that stores no pictures."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tools.measure.peers.inputs import build
from tools.measure.peers.way import Comparison, Way, Work

ROWS = 1_000_000
_BASE, _FILE = 500, 25_000
"""Different captions, and rows of a file."""
_WHERE = "len(sentences) >= 7 AND caption LIKE '%red%' AND width >= 128"
_FILTER = f"SELECT sample_id FROM samples WHERE {_WHERE}"
_GROUP = "SELECT len(sentences) AS number, count(*) FROM samples GROUP BY number"
_EXPORT = "SELECT sample_id, source_path, width, height, caption FROM samples"


def make(inputs: Path) -> None:
    """Write a dataset of :data:`ROWS` rows, whose captions are some hundred ones in turn."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    import glit
    from glit.curate.derive import finish
    from glit.dataset.manifest import describe_data_file
    from glit.stages.pack import writer_options

    folder, small = inputs / "million", inputs / "some-rows"
    build(inputs / "scenes", small, limit=_BASE, settings=["pack.image_store=path"])
    dataset = glit.open_dataset(small)
    schema = dataset.schema
    base = pa.concat_tables(dataset.table(row_group=n) for n in range(len(dataset.places)))
    (folder / "data").mkdir(parents=True)
    for name in ("drops.parquet", "duplicates.parquet"):
        (folder / name).write_bytes((small / name).read_bytes())
    files = {name: e for name, e in dataset.manifest.files.items() if not name.startswith("data/")}
    starts = range(0, ROWS, _FILE)
    for index, start in enumerate(starts):
        numbers = np.arange(start, min(ROWS, start + _FILE))
        table = base.take(pa.array(numbers % len(base)))
        ids = [hashlib.sha256(str(number).encode()).hexdigest() for number in numbers]
        paths = [f"{number:07}.jpg" for number in numbers]
        for column, values in (("sample_id", ids), ("source_path", paths)):
            place = schema.get_field_index(column)
            table = table.set_column(place, schema.field(column), pa.array(values))
        name = f"data/train-{index:05}-of-{len(starts):05}.parquet"
        pq.write_table(
            table.cast(schema), folder / name, row_group_size=100, **writer_options(schema)
        )
        files[name] = describe_data_file(folder / name, len(table))
    counts = dataclasses.replace(
        dataset.manifest.counts, ingested=ROWS, shipped=ROWS, dropped=0, duplicates=0, drops={},
        without_pair=ROWS if dataset.manifest.counts.without_pair else 0,
    )  # fmt: skip
    manifest = dataclasses.replace(dataset.manifest, counts=counts, files=files)
    finish(folder, manifest, name="million", sources=())


def _ids(rows: Iterable[tuple[str]]) -> list[Any]:
    """How many rows there are and a hash of which."""
    found = sorted(each for (each,) in rows)
    return [len(found), hashlib.sha256("".join(found).encode()).hexdigest()]


def _histogram(rows: Iterable[tuple[int, int]]) -> list[Any]:
    return sorted([number, count] for number, count in rows)


def _lines(path: Path) -> list[Any]:
    """How many objects a file holds, one a line, and a sum of their hashes."""
    rows = total = 0
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.startswith("{"):
                told = json.dumps(json.loads(line.rstrip().rstrip(",")), sort_keys=True)
                digest = hashlib.sha256(told.encode()).digest()
                rows, total = rows + 1, (total + int.from_bytes(digest)) % (1 << 64)
    return [rows, str(total)]


def _glit_query(sql: str, read: Callable[[Any], Any]) -> Callable[[Path, Path], Work]:
    def prepare(inputs: Path, out: Path) -> Work:
        from glit.dataset.query import query

        return lambda: read(query(str(inputs / "million"), sql).fetchall())

    return prepare


def _duckdb_query(sql: str, read: Callable[[Any], Any]) -> Callable[[Path, Path], Work]:
    """The same SQL on the bare files."""

    def prepare(inputs: Path, out: Path) -> Work:
        connection = _opened(inputs)
        return lambda: read(connection.sql(sql).fetchall())

    return prepare


def _opened(inputs: Path) -> Any:
    import duckdb

    connection = duckdb.connect()
    files = inputs / "million" / "data" / "*.parquet"
    connection.execute(f"CREATE VIEW samples AS SELECT * FROM read_parquet('{files}')")
    return connection


def _datasets(inputs: Path, out: Path) -> Callable[[list[str]], Any]:
    """Opens some columns as ``datasets`` does: copied into files of its own, which is timed."""
    import datasets

    datasets.disable_progress_bars()
    files = sorted(map(str, (inputs / "million" / "data").glob("*.parquet")))
    opened: Any = datasets.Dataset.from_parquet
    return lambda columns: opened(files, columns=columns, cache_dir=str(out))


def _datasets_filter(inputs: Path, out: Path) -> Work:
    opened = _datasets(inputs, out)

    def fits(width: list[int], sentences: list[Any], caption: list[str]) -> list[bool]:
        rows = zip(width, sentences, caption, strict=True)
        return [w >= 128 and len(s) >= 7 and "red" in c for w, s, c in rows]

    def work() -> Any:
        rows = opened(["sample_id", "width", "sentences", "caption"])
        rows = rows.filter(fits, batched=True, input_columns=["width", "sentences", "caption"])
        return _ids((each,) for each in rows["sample_id"])

    return work


def _datasets_group(inputs: Path, out: Path) -> Work:
    import pyarrow.compute

    opened, compute = _datasets(inputs, out), pyarrow.compute

    def work() -> Any:
        length: Any = compute
        column = opened(["sentences"]).data.column("sentences")
        counted = length.list_value_length(column).value_counts().to_pylist()
        return _histogram((each["values"], each["counts"]) for each in counted)

    return work


def _glit_stats(inputs: Path, out: Path) -> Work:
    from glit.api import statistics

    return lambda: _histogram(statistics(inputs / "million").sentence_histogram.items())


def _glit_export(inputs: Path, out: Path) -> Work:
    from glit.dataset.query import query
    from glit.dataset.query_output import write_answer

    def work() -> Path:
        with (out / "rows.json").open("wb") as file:
            write_answer(query(str(inputs / "million"), _EXPORT), file, "json")
        return out / "rows.json"

    return work


def _duckdb_export(inputs: Path, out: Path) -> Work:
    connection = _opened(inputs)

    def work() -> Path:
        connection.execute(f"COPY ({_EXPORT}) TO '{out / 'rows.json'}' (FORMAT json)")
        return out / "rows.json"

    return work


def _datasets_export(inputs: Path, out: Path) -> Work:
    opened = _datasets(inputs, out)

    def work() -> Path:
        rows = opened(["sample_id", "source_path", "width", "height", "caption"])
        rows.to_json(str(out / "rows.json"), force_ascii=False)
        return out / "rows.json"

    return work


def _glit_select(inputs: Path, out: Path) -> Work:
    import glit

    def work() -> Any:
        glit.select(inputs / "million", out / "some", where=_WHERE)
        return _selected(out / "some" / "data" / "*.parquet")

    return work


def _duckdb_select(inputs: Path, out: Path) -> Work:
    connection = _opened(inputs)

    def work() -> Any:
        connection.execute(
            f"COPY (SELECT * FROM samples WHERE {_WHERE}) TO '{out / 'some.parquet'}' "
            "(FORMAT parquet, COMPRESSION zstd)"
        )
        return _selected(out / "some.parquet")

    return work


def _selected(files: Path) -> list[Any]:
    import duckdb

    sql = f"SELECT sample_id FROM read_parquet('{files}')"
    return _ids(duckdb.connect().execute(sql).fetchall())


_LESS = "looks at no page's header first, so a hostile file may fill memory"
FILTER = Comparison(
    title="a million rows: the ids of those that meet a condition, in SQL",
    make=make,
    ways=(
        Way(name="glit query", prepare=_glit_query(_FILTER, _ids)),
        Way(name="DuckDB", prepare=_duckdb_query(_FILTER, _ids), package="duckdb", note=_LESS),
        Way(name="datasets", prepare=_datasets_filter, package="datasets", note="copies first"),
    ),
)
GROUP = Comparison(
    title="a million rows: counted by their number of sentences",
    make=make,
    ways=(
        Way(name="glit query", prepare=_glit_query(_GROUP, _histogram)),
        Way(name="glit stats", prepare=_glit_stats, note="counts words, tokens and pairs too"),
        Way(name="DuckDB", prepare=_duckdb_query(_GROUP, _histogram), package="duckdb", note=_LESS),
        Way(name="datasets", prepare=_datasets_group, package="datasets", note="copies first"),
    ),
)
SELECT = Comparison(
    title="a million rows: those that meet a condition written as a new dataset",
    make=make,
    ways=(
        Way(name="glit select", prepare=_glit_select, note="writes drops, card and manifest too"),
        Way(name="DuckDB", prepare=_duckdb_select, package="duckdb", note="the rows alone"),
    ),
)
EXPORT = Comparison(
    title="a million rows: five columns written as JSON, an object a line",
    make=make,
    read=_lines,
    ways=(
        Way(name="glit query", prepare=_glit_export),
        Way(name="DuckDB", prepare=_duckdb_export, package="duckdb", note=_LESS),
        Way(name="datasets", prepare=_datasets_export, package="datasets", note="copies first"),
    ),
)
