"""SQL and exports over a dataset of a million rows that stores no pictures."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tools.measure.peers.inputs import build
from tools.measure.peers.way import Comparison, Way, Work

ROWS = 1_000_000
_BASE, _FILE = 500, 25_000
"""Different captions, and rows of a file."""
_WHERE = "len(sentences) >= 7 AND caption LIKE '%red%' AND width = 512"
_FILTER = f"SELECT sample_id FROM samples WHERE {_WHERE}"
_GROUP = "SELECT len(sentences) AS number, count(*) FROM samples GROUP BY number"
_EXPORT = "SELECT sample_id, source_path, width, height, caption FROM samples"


def make(inputs: Path) -> None:
    """Write a dataset of :data:`ROWS` rows, whose captions are some hundred ones in turn."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    import glit
    from glit.curate.rewrite import finish
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
    finish(folder, manifest, name="million", caution="")


def _digest(ids: Iterable[str]) -> list[Any]:
    """How many rows there are and a hash of which."""
    found = sorted(ids)
    return [len(found), hashlib.sha256("".join(found).encode()).hexdigest()]


def _histogram(rows: Iterable[tuple[int, int]]) -> list[Any]:
    return sorted([number, count] for number, count in rows)


def _lines(path: Path) -> list[Any]:
    """How many objects a file holds and a hash of them, whatever their order and white space."""
    found: Counter[int] = Counter()
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.startswith("{"):
                row = json.loads(line.rstrip().rstrip(","))
                key = hashlib.sha256(json.dumps(row, sort_keys=True).encode()).digest()
                found.update(rows=1, sum=int.from_bytes(key[:7]))
    return [found["rows"], found["sum"]]


def _glit(sql: str, read: Callable[[Any], Any]) -> Callable[[Path, Path], Work]:
    """``glit query``."""

    def prepare(inputs: Path, out: Path) -> Work:
        from glit.dataset.query import query

        return lambda: read(query(str(inputs / "million"), sql).fetchall())

    return prepare


def _duckdb(sql: str, read: Callable[[Any], Any]) -> Callable[[Path, Path], Work]:
    """The same SQL on the bare files."""

    def prepare(inputs: Path, out: Path) -> Work:
        connection = _files(inputs)
        return lambda: read(connection.sql(sql).fetchall())

    return prepare


def _files(inputs: Path) -> Any:
    import duckdb

    connection = duckdb.connect()
    where = str(inputs / "million" / "data" / "*.parquet")
    connection.execute(f"CREATE VIEW samples AS SELECT * FROM read_parquet('{where}')")
    return connection


def _datasets(inputs: Path, columns: list[str]) -> Any:
    """The rows as ``datasets`` has them: copied into its own files, which counts."""
    import datasets

    datasets.disable_progress_bars()
    files = sorted(map(str, (inputs / "million" / "data").glob("*.parquet")))
    return datasets.Dataset.from_parquet(files, columns=columns, cache_dir=str(inputs.parent / "hf"))


def _ids(rows: Any) -> list[Any]:
    return _digest(each for (each,) in rows)
