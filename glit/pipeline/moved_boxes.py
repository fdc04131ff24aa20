"""Say how many images' boxes were moved, as the user's file states pictures of other sizes."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from glit.data.bounded_parquet import BoundedParquet
from glit.data.frames import CHANGES, Frame, fit_frame
from glit.data.parquet import read_parquet_file
from glit.inputs.lookup import UserTable
from glit.inputs.user_tables import brought_table
from glit.storage.duckdb_temp import spilling
from glit.storage.store import Store

_STATED = """
    INSERT OR REPLACE INTO stated
    SELECT path, last(w), last(h) FROM (
        SELECT path, try_cast(region->>'$.width' AS DOUBLE) AS w,
               try_cast(region->>'$.height' AS DOUBLE) AS h
        FROM rows WHERE contains(region, '"width"'))
    WHERE w > 0 AND h > 0 GROUP BY path
"""
_SIZES = """
    SELECT w, h, width, height, count(*), min(source_path)
    FROM file JOIN stated ON path = source_path GROUP BY ALL ORDER BY 6
"""


def moved_boxes_note(regions: UserTable | None, dataset: Store, files: Iterable[str]) -> str:
    """Return a line on the boxes that were scaled or turned; empty if there are none.

    Args:
        regions: the user's.
        dataset: with its data files.
        files: their names.
    """
    counts, first = Counter[str](), {}
    with brought_table(regions) as table:
        if regions is None or table is None:
            return ""
        with tempfile.TemporaryDirectory() as folder, spilling(folder) as connection:
            connection.execute("CREATE TABLE stated (path VARCHAR PRIMARY KEY, w DOUBLE, h DOUBLE)")
            with BoundedParquet(table) as rows:
                for batch in rows.iter_batches(columns=["path", "region"]):
                    connection.register("rows", pa.Table.from_batches([batch]))
                    connection.execute(_STATED)
            for name in files:
                columns = ["source_path", "width", "height"]
                file = read_parquet_file(dataset.for_arrow(name), columns=columns)
                connection.register("file", file)
                for *sizes, number, path in connection.execute(_SIZES).fetchall():
                    if change := _change(*sizes):
                        counts[change] += number
                        first.setdefault(change, path)
    told = [
        f"images whose boxes were {change}: {counts[change]} ({why}; first: {first[change]})"
        for change, why in CHANGES.items()
        if counts[change]
    ]
    return f"{regions.name}: {'; '.join(told)}" if told else ""


def _change(stated_width: float, stated_height: float, width: int, height: int) -> str:
    """Return how the boxes of a sample were moved."""
    stated, size = (stated_width, stated_height), (width, height)
    try:
        return fit_frame(stated, size).change
    except ValueError:  # it was shipped, so its orientation swaps width and height
        return Frame(stated=stated, size=size, orientation=6).change
