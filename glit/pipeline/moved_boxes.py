"""Say how many images' boxes were moved, as the user's file states pictures of other sizes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from glit.data.bounded_parquet import BoundedParquet
from glit.data.frames import CHANGES, Frame, fit_frame, stated_size
from glit.data.parquet import read_parquet_file
from glit.inputs.lookup import UserTable
from glit.inputs.user_tables import brought_table
from glit.storage.store import Store


def moved_boxes_note(regions: UserTable | None, dataset: Store, files: Iterable[str]) -> str:
    """Return a line on the boxes that were scaled or turned; empty if there are none.

    Args:
        regions: the user's.
        dataset: with its data files.
        files: their names.
    """
    stated = _stated_sizes(regions)
    if not stated:
        return ""
    counts, first = Counter[str](), {}
    for name in files:
        columns = ["source_path", "width", "height"]
        table = read_parquet_file(dataset.for_arrow(name), columns=columns)
        for row in table.to_pylist():
            change = _change(stated.get(row["source_path"]), row)
            if change:
                counts[change] += 1
                first.setdefault(change, row["source_path"])
    assert regions is not None
    told = [
        f"images whose boxes were {change}: {counts[change]} ({why}; first: {first[change]})"
        for change, why in CHANGES.items()
        if counts[change]
    ]
    return f"{regions.name}: {'; '.join(told)}" if told else ""


def _stated_sizes(regions: UserTable | None) -> dict[str, tuple[Any, Any]]:
    """Read sizes by path, for rows that state one."""
    found: dict[str, tuple[Any, Any]] = {}
    with brought_table(regions) as table:
        if table is None:
            return found
        with BoundedParquet(table) as file:
            for batch in file.iter_batches(columns=["path", "region"]):
                for row in batch.to_pylist():
                    if '"width"' in row["region"]:
                        size = stated_size(json.loads(row["region"]))
                        if size is not None:
                            found[row["path"]] = size
    return found


def _change(stated: tuple[Any, Any] | None, row: Mapping[str, Any]) -> str:
    """Return how the boxes of a sample were moved."""
    if stated is None:
        return ""
    size = (row["width"], row["height"])
    try:
        return fit_frame(stated, size).change
    except ValueError:  # it was shipped, so its orientation swaps width and height
        return Frame(stated=stated, size=size, orientation=6).change
