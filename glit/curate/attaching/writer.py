"""The dataset with its pictures: rows moved into the frames of the files that were found."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from typing import Any

import pyarrow as pa

from glit.curate.attaching.choice import AMBIGUOUS, Match, Matches
from glit.curate.attaching.moved_row import moved_row
from glit.curate.attaching.placement import Placement
from glit.curate.attaching.user_pictures import UserPictures
from glit.data.records import Drop
from glit.data.schema import ATTACHED, CORRECTED
from glit.dataset.columns import RowGroup
from glit.dataset.reader import Dataset
from glit.dataset.recorded_rules import pairings_of
from glit.errors import RunError
from glit.images import decode
from glit.images.location import without_location
from glit.runtime.progress import StageProgress
from glit.stages.pack import Pack


class AttachedRows:
    """The change of row groups by the pictures that were found for them; counts what it does.

    Args:
        dataset: the published dataset.
        pictures: the user's pictures.
        found: what was found.
        progress: counts the rows.
    """

    def __init__(
        self,
        dataset: Dataset,
        pictures: UserPictures,
        found: Matches,
        progress: StageProgress,
    ) -> None:
        self._pictures, self._found, self._progress = pictures, found, progress
        self._keep_location = dataset.manifest.recipe.table(Pack.name).get("keep_location")
        self._pairings = pairings_of(dataset.manifest)
        self._number = 0
        """Of the next row."""
        self.located = 0
        """Pictures that said where they were taken."""
        self.ways: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.added = (*CORRECTED, ATTACHED) if found.is_cut else (ATTACHED,)
        """Columns that the rows get."""

    @property
    def changed(self) -> bool:
        """True if the dataset does not hold the samples and boxes that were published."""
        return bool(self.reasons) or self._found.is_cut

    def __call__(self, group: RowGroup) -> tuple[pa.Table, dict[int, Drop]]:
        """The rows that have a picture, in its frame."""
        found = self._found.of(self._number, len(group))
        rows: list[dict[str, Any]] = []
        drops: dict[int, Drop] = {}
        for number, row in enumerate(group.table.to_pylist()):
            made = self._made(found.get(self._number + number), row)
            if isinstance(made, Drop):
                drops[number] = made
                self.reasons[made.reason] += 1
            else:
                rows.append(made)
                self.ways[made[ATTACHED[0]]["how"]] += 1
        self._number += len(group)
        self._progress.advance(len(group), len(drops))
        return pa.Table.from_pylist(rows, schema=group.table.schema), drops

    def _made(self, found: Match | None, row: dict[str, Any]) -> dict[str, Any] | Drop:
        if found is None:
            return Drop(reason="no_picture", message="none of the files is this picture")
        file = self._pictures.place(found.source, found.path)
        if found.how == AMBIGUOUS:
            return Drop(reason="ambiguous_picture", message=f"{file} may be another's as well")
        data = self._pictures.read(found.source, found.path)
        if hashlib.sha256(data).hexdigest() != found.sha256:
            raise RunError(f"{found.path}: changed since it was looked at; run again")
        pixels = decode(data)
        height, width = pixels.shape[:2]
        size = (row["width"], row["height"])
        placement = found.placement or Placement(left=0, top=0, right=size[0], bottom=size[1])
        if (width, height) != size or found.placement is not None:
            made = moved_row(row, placement, width, height, self._pairings)
            if isinstance(made, Drop):
                return made
            row = made
        told = {"file": file, "sha256": found.sha256, "how": found.how,
                "colours": found.colours, **dataclasses.asdict(placement)}  # fmt: skip
        if not self._keep_location and (plain := without_location(data)) is not data:
            self.located += 1
            data = plain
        return {**row, "image": {"bytes": data, "path": row["source_path"]}, ATTACHED[0]: told}
