"""How far a build is."""

from __future__ import annotations

import os

import pytest
from building import edit_state, quiet

from glit.errors import DamagedTableError, UserError
from glit.pipeline.executors.local import LocalExecutor
from glit.pipeline.retry import retry
from glit.pipeline.status import _shipped_nothing, status


def test_status_counts_chunks_rows_and_drops(built):
    found = status(str(built))
    assert found["complete"] and found["counts"]["shipped"] == 24
    assert [(s["stage"], s["chunks_done"], s["rows"]) for s in found["stages"]] == [
        (stage, 2, 24) for stage in ("ingest", "caption", "split", "propose", "score", "pair")
    ]


def test_of_two_tables_of_a_chunk_the_newer_counts(built_copy):
    folder = next((built_copy / "work").glob("ingest-*"))
    first = folder / sorted(path.name for path in folder.iterdir())[0]
    for name, time_s in (("000000-000000000000", 1), ("000000-ffffffffffff", 2)):
        other = folder / f"{name}.parquet"
        other.write_bytes(b"of an image that was another then, and damaged")
        os.utime(other, (time_s, time_s))
    assert status(str(built_copy))["stages"][0]["rows"] == 24
    os.utime(first, (0, 0))
    with pytest.raises(DamagedTableError):
        status(str(built_copy))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_chunks", -5),
        ("num_chunks", "6"),
        ("num_chunks", True),
        ("folders", ["ingest"]),
        ("folders", {"ingest": "../../etc"}),
        ("recipe", "mini"),
        ("images", 7),
        ("captions", ["a"]),
        ("source", {"pattern": 1}),
        ("source", {"other": ""}),
        ("additions", -1),
        ("lock", 3),
    ],
)
def test_a_hand_edited_state_is_one_line(built_copy, key, value):
    edit_state(built_copy / "work", lambda state: state.update({key: value}))
    for ask in (status, lambda out: retry(out, LocalExecutor(), quiet())):
        with pytest.raises(UserError, match=f"state.json: '{key}': .* run glit build again"):
            ask(str(built_copy))


@pytest.mark.parametrize(
    ("left", "empty"), [({"score": 0, "pair": 0}, True), ({"score": 1, "pair": 1}, False),
                        ({"negatives": 0, "pair": 4}, True), ({"pair": 4, "negatives": 0}, True)],
)  # fmt: skip
def test_nothing_is_shipped_if_any_end_of_the_flow_lets_nothing_through(left, empty):
    stages = [
        {"stage": name, "chunks_done": 1, "chunks_total": 1, "rows": 4, "drops": {"x": 4 - number}}
        for name, number in left.items()
    ]
    assert _shipped_nothing(stages) is empty
    assert not _shipped_nothing([*stages, {**stages[0], "chunks_done": 0}])
