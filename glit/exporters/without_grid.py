"""Leave out the regions of the grid, which mean nothing to trainers of detectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from glit.dataset.reader import Dataset
from glit.dataset.row import Row, is_grounded, masks_of


class WithoutGrid(Dataset):
    """The same dataset, to iterate over rows: without regions of the grid, and their pairs."""

    def __init__(self, whole: Dataset) -> None:
        self.__dict__.update(whole.__dict__)
        self._whole = whole

    def __iter__(self) -> Iterator[Row]:
        return (without_grid(row) for row in self._whole)

    def __getitem__(self, number: int) -> Row:
        return without_grid(self._whole[number])


def without_grid(row: Row) -> Row:
    """A row without the regions of the grid; a sentence or phrase that has one has none then."""
    kept = [number for number, region in enumerate(row.regions) if not region.is_grid]
    place = {old: new for new, old in enumerate(kept)}

    def moved(values: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            each | {"region": place[each["region"]]} for each in values if each["region"] in place
        ]

    extra = dict(row.extra)
    if is_grounded(row):
        extra["groundings"] = moved(extra["groundings"])
    if masks_of(row):
        extra["masks"] = moved(extra["masks"])
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
