"""List the images that are not in the dataset, by reason: drops and duplicates."""

from __future__ import annotations

from typing import Any

import duckdb

from glit.view.originals import Originals

IN_PAGE = 200
"""Most images of every reason, on a page by itself."""
_PICTURES = 250
"""Most pictures of all reasons together, on a page by itself: with those of 200 samples it stays
under 15 MB."""
_SIDE, _BYTES = 200, 6 << 10
_ROWS = """
    SELECT stage || '/' || reason AS why, sample_id, source_path AS path, message FROM drops
    UNION ALL
    SELECT 'duplicate/' || kind, sample_id, source_path, 'repeats ' || kept_path FROM duplicates
"""


def dropped(
    connection: duckdb.DuckDBPyConnection,
    originals: Originals,
    *,
    why: str,
    text: str,
    first: int,
    most: int,
    pictures: int,
) -> tuple[int, list[dict[str, Any]]]:
    """Count the dropped images of a reason, and list some of them by path.

    Args:
        connection: with the dataset's views.
        originals: where their files are.
        why: ``stage/reason``, or ``duplicate/exact`` or ``duplicate/near``.
        text: in the path or the message, or the beginning of the id; lower case.
        first: how many to pass over.
        most: of the answer.
        pictures: so many of the answer get one.
    """
    rows = connection.execute(
        f"""SELECT sample_id, path, message, count(*) OVER () FROM ({_ROWS})
            WHERE why = $why AND (contains(lower(path), $text) OR starts_with(sample_id, $text)
                                  OR contains(lower(coalesce(message, '')), $text))
            ORDER BY path LIMIT {most} OFFSET {first}""",
        {"why": why, "text": text},
    ).fetchall()
    total = rows[0][3] if rows else 0
    found = []
    for place, (sample_id, path, message, _) in enumerate(rows):
        known = sample_id if place < pictures else ""
        image = originals.picture(path, known or "", max_side=_SIDE, max_bytes=_BYTES)
        found.append({"id": sample_id or "", "path": path, "why": why, "message": message or "",
                      "image": image})  # fmt: skip
    return total, found


def all_dropped(
    connection: duckdb.DuckDBPyConnection, originals: Originals
) -> dict[str, list[dict[str, Any]]]:
    """The first :data:`IN_PAGE` of every reason."""
    reasons = connection.execute(f"SELECT DISTINCT why FROM ({_ROWS}) ORDER BY why").fetchall()
    pictures = _PICTURES // max(len(reasons), 1)
    return {
        why: dropped(
            connection, originals, why=why, text="", first=0, most=IN_PAGE, pictures=pictures
        )[1]
        for (why,) in reasons
    }
