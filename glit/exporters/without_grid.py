"""Leave out the regions of the grid, which mean nothing to trainers of detectors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from glit.data.records import GRID_SOURCES
from glit.dataset.row import Row, is_grounded, masks_of


def table_without_grid(table: pa.Table) -> pa.Table:
    """The columns ``regions`` and ``pairs`` without the regions of the grid; others as they are."""
    if "regions" not in table.column_names:
        return table
    every = table["regions"].to_pylist()
    kept = [[n for n, r in enumerate(own) if r["source"] not in GRID_SOURCES] for own in every]
    changed = {"regions": [[own[n] for n in ns] for own, ns in zip(every, kept, strict=True)]}
    if "pairs" in table.column_names:
        changed["pairs"] = [
            _moved(own, {old: new for new, old in enumerate(ns)})
            for own, ns in zip(table["pairs"].to_pylist(), kept, strict=True)
        ]
    for name, values in changed.items():
        at = table.column_names.index(name)
        field = table.schema.field(at)
        table = table.set_column(at, field, pa.array(values, field.type))
    return table


def without_grid(row: Row) -> Row:
    """A row without the regions of the grid; a sentence or phrase that has one has none then."""
    kept = [number for number, region in enumerate(row.regions) if not region.is_grid]
    place = {old: new for new, old in enumerate(kept)}

    extra = dict(row.extra)
    if is_grounded(row):
        extra["groundings"] = _moved(extra["groundings"], place)
    if masks_of(row):
        extra["masks"] = _moved(extra["masks"], place)
    phrases, agreement = (
        None if scores is None else scores[:, kept]
        for scores in (row.phrase_similarity, row.agreement)
    )
    return replace(
        row,
        regions=tuple(row.regions[number] for number in kept),
        similarity=row.similarity[:, kept],
        phrase_similarity=phrases,
        agreement=agreement,
        pairs=tuple(
            replace(pair, region=place[pair.region]) for pair in row.pairs if pair.region in place
        ),
        extra=extra,
    )


def _moved(values: list[dict[str, Any]], place: dict[int, int]) -> list[dict[str, Any]]:
    """The values of regions that stay, with the regions' new numbers."""
    return [each | {"region": place[each["region"]]} for each in values if each["region"] in place]
