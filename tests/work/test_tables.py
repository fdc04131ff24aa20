"""Tables of stages: rows in order, counts in the footer."""

from __future__ import annotations

import errno

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glit.data.records import Box, Drop, Region, Sample
from glit.errors import DamagedTableError, RunError
from glit.pipeline.work.tables import (
    drops_by_reason,
    read_counts,
    read_table,
    stage_table,
    sum_counts,
)
from glit.stages.propose import ProposeStage
from glit.storage.checksummed_parquet import SealError, read_sealed, write_sealed
from glit.storage.store import Store


def sample(name: str) -> Sample:
    region = Region(box=Box(x0=1, y0=2, x1=3, y1=4), score=0.5, label="", source="sam")
    known = {"source_path": f"{name}.png", "width": 9, "height": 9, "num_bytes": 7}
    return Sample(sample_id=name, regions=(region,), **known)


def test_rows_and_counts_come_back(tmp_path):
    outcomes = [
        ("b", sample("b")),
        ("a", Drop(reason="no_region", message="none")),
        ("d", Drop(reason="model_error", message="broken")),
        ("c", Drop(reason="no_region", message="none")),
    ]
    rows = [ProposeStage.outcome_row(sample(name), outcome) for name, outcome in outcomes]
    assert drops_by_reason(rows) == {"no_region": 2, "model_error": 1}
    file = tmp_path / "x.parquet"
    write_sealed(stage_table(ProposeStage.columns, rows), file)
    read = read_table(Store(tmp_path), "x.parquet").to_pylist()
    assert [row["sample_id"] for row in read] == ["b", "a", "d", "c"]
    found = {row["sample_id"]: row for row in read}
    assert ProposeStage.with_row(sample("b"), found["b"]) == sample("b")
    assert found["b"]["drop"] is None and found["d"]["drop"]["message"] == "broken"
    assert read_counts(file) == (4, {"model_error": 1, "no_region": 2})


def test_a_table_without_rows(tmp_path):
    file = tmp_path / "x.parquet"
    write_sealed(stage_table(ProposeStage.columns, []), file)
    assert read_table(Store(tmp_path), "x.parquet", ["drop"]).num_rows == 0
    assert read_counts(file) == (0, {})


def test_a_strangers_table_fills_no_memory(tmp_path, monkeypatch):
    """Sealed as it should be, some kilobytes, and 8 GB when decoded."""
    long = pa.DictionaryArray.from_arrays(np.zeros(8000, np.int32), pa.array(["x" * 1_000_000]))
    other = {"store_schema": False, "dictionary_pagesize_limit": 1 << 30, "compression": "zstd"}
    monkeypatch.setattr("glit.storage.checksummed_parquet.PINNED", other)
    write_sealed(pa.table({"text": long}), tmp_path / "x.parquet")
    assert (tmp_path / "x.parquet").stat().st_size < 100_000
    with pytest.raises(DamagedTableError, match="decodes to 7630 MB, at most 1024 MB"):
        read_table(Store(tmp_path), "x.parquet")


def test_equal_tables_are_equal_files_that_anybody_can_read(tmp_path):
    table = pa.table({"a": [1, 2], "b": ["x", None]})
    for name in ("one", "two"):
        write_sealed(table, tmp_path / name)
    data = (tmp_path / "one").read_bytes()
    assert data == (tmp_path / "two").read_bytes()
    assert pq.read_table(tmp_path / "one").equals(table)
    assert read_sealed(data).read().equals(table)


def test_no_bit_flips_unseen(tmp_path):
    write_sealed(pa.table({"a": [1, 2], "b": ["some text", None]}), tmp_path / "x")
    whole = (tmp_path / "x").read_bytes()
    for at in range(len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << (at % 8)
        with pytest.raises(SealError):
            read_sealed(bytes(flipped))
    for length in (0, 3, len(whole) // 2, len(whole) - 1):
        with pytest.raises(SealError):
            read_sealed(whole[:length])


def test_why_a_table_cannot_be_read(tmp_path, monkeypatch):
    store = Store(tmp_path)
    with pytest.raises(DamagedTableError, match=r"x: damaged \(No such file"):
        read_table(store, "x")
    for number, error in ((errno.EIO, DamagedTableError), (errno.EACCES, RunError)):

        def fail(name, number=number):
            raise OSError(number, "no")

        monkeypatch.setattr(store, "read", fail)
        monkeypatch.setattr(store, "for_arrow", fail)
        for read in (lambda: read_table(store, "x"), lambda: sum_counts(store, ["x"])):
            with pytest.raises(error, match=r"x: (damaged|cannot be read) \(no\)"):
                read()
    monkeypatch.undo()
    (tmp_path / "x").write_bytes(b"PAR1 no table PAR1")
    with pytest.raises(DamagedTableError, match="x: damaged"):
        sum_counts(store, ["x"])
