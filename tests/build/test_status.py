"""How far a build is."""

from __future__ import annotations

from glit.build.status import status


def test_status_counts_chunks_rows_and_drops(built):
    found = status(str(built))
    assert found["complete"] and found["counts"]["shipped"] == 24
    assert [(s["stage"], s["chunks_done"], s["rows"]) for s in found["stages"]] == [
        (stage, 2, 24) for stage in ("ingest", "caption", "split", "propose", "score", "pair")
    ]
