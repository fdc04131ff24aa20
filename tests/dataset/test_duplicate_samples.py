"""Samples that come again, in whatever file and batch."""

from __future__ import annotations

import contextlib

import duckdb
import pytest

from glit.dataset import duplicate_samples as repeats
from glit.dataset.duplicate_samples import Repeats
from glit.errors import RunError


def test_each_repetition_is_told_with_the_first_across_files_and_batches(monkeypatch) -> None:
    monkeypatch.setattr(repeats, "_BATCH", 2)
    with contextlib.closing(Repeats()) as seen:
        seen.add("b.parquet", [("1", "x.jpg"), ("2", "y.jpg"), ("1", "again.jpg")])
        seen.add("a.parquet", [])
        seen.add("a.parquet", [("3", "z.jpg"), ("2", "y.jpg")])
        seen.add("a.parquet", [("1", "once more.jpg")])
        assert list(seen.found()) == [
            ("b.parquet", "again.jpg", "x.jpg"),
            ("a.parquet", "y.jpg", "y.jpg"),
            ("a.parquet", "once more.jpg", "x.jpg"),
        ]


def test_nothing_seen_is_nothing_repeated() -> None:
    with contextlib.closing(Repeats()) as seen:
        assert list(seen.found()) == []


def test_no_room_is_one_line(monkeypatch) -> None:
    class Full:
        def register(self, *_):
            pass

        def execute(self, *_):
            raise duckdb.OutOfMemoryException("failed to offload data block\n(512 MB used)")

        def close(self):
            pass

    with contextlib.closing(Repeats()) as seen:
        monkeypatch.setattr(seen, "_connection", Full())
        with pytest.raises(
            RunError, match=r"repeated samples there \(failed to offload .*\); set TMPDIR"
        ):
            list(seen.found())
