"""What is not in the dataset, by reason: images that were dropped, or that repeat another."""

from __future__ import annotations

from typing import Any

import duckdb

IN_PAGE = 200
"""Of every reason, on a page by itself."""
_ROWS = """
    SELECT stage || '/' || reason AS why, sample_id, source_path AS path, message FROM drops
    UNION ALL
    SELECT 'duplicate/' || kind, sample_id, source_path, 'repeats ' || kept_path FROM duplicates
"""


def dropped(
    connection: duckdb.DuckDBPyConnection, *, why: str, text: str, first: int, most: int
) -> tuple[int, list[dict[str, Any]]]:
    """How many there are, and some of them by path.

    Args:
        connection: with the dataset's views.
        why: ``stage/reason``, or ``duplicate/exact`` or ``duplicate/near``.
        text: in the path or the message, or the beginning of the id; lower case.
        first: how many to pass over.
        most: of the answer.
    """
    rows = connection.execute(
        f"""SELECT sample_id, path, message, count(*) OVER () FROM ({_ROWS})
            WHERE why = $why AND (contains(lower(path), $text) OR starts_with(sample_id, $text)
                                  OR contains(lower(coalesce(message, '')), $text))
            ORDER BY path LIMIT {most} OFFSET {first}""",
        {"why": why, "text": text},
    ).fetchall()
    total = rows[0][3] if rows else 0
    return total, [
        {"id": sample_id or "", "path": path, "why": why, "message": message or ""}
        for sample_id, path, message, _ in rows
    ]


def all_dropped(connection: duckdb.DuckDBPyConnection) -> dict[str, list[dict[str, Any]]]:
    """The first :data:`IN_PAGE` of every reason."""
    reasons = connection.execute(f"SELECT DISTINCT why FROM ({_ROWS}) ORDER BY why").fetchall()
    return {
        why: dropped(connection, why=why, text="", first=0, most=IN_PAGE)[1] for (why,) in reasons
    }
