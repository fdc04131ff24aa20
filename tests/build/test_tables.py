"""Tables of stages: rows in order, counts in the footer."""

from __future__ import annotations

from glit.build.tables import drops_by_reason, read_counts, read_rows, stage_row, stage_table
from glit.parquet import write_parquet
from glit.records import Box, Drop, Region, Sample
from glit.stages.propose import ProposeStage


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
    rows = [stage_row(ProposeStage, name, outcome) for name, outcome in outcomes]
    assert drops_by_reason(rows) == {"no_region": 2, "model_error": 1}
    file = tmp_path / "x.parquet"
    write_parquet(stage_table(ProposeStage.columns, rows), file)
    found = read_rows(file)
    assert list(found) == ["b", "a", "d", "c"]
    assert ProposeStage.with_row(sample("b"), found["b"]) == sample("b")
    assert found["b"]["drop"] is None and found["d"]["drop"]["message"] == "broken"
    assert read_counts(file) == (4, {"model_error": 1, "no_region": 2})


def test_a_table_without_rows(tmp_path):
    file = tmp_path / "x.parquet"
    write_parquet(stage_table(ProposeStage.columns, []), file)
    assert (read_rows(file), read_counts(file)) == ({}, (0, {}))
