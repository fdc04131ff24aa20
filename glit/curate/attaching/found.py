"""The user's picture that was chosen for a sample."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glit.curate.attaching.placement import Placement
from glit.curate.attaching.work_tables import StoredRows

WAYS = {
    "bytes": "the same file",
    "pixels": "another file of the same pixels",
    "looks": "encoded again, resized, cut, padded, mirrored, turned or in other tones",
}
"""How a picture is found."""
AMBIGUOUS = "ambiguous"
"""Instead of a way: the file may as well be another sample's picture."""
_PLACE = [each.name for each in dataclasses.fields(Placement)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A user's picture for a sample."""

    how: str
    """A key of :data:`WAYS`, or :data:`AMBIGUOUS`."""
    source: int
    """Number of the folder."""
    path: str
    """Path of the file, relative to that folder."""
    sha256: str
    placement: Placement | None
    """None for the same pixels."""
    colours: str
    """``same``, ``grey`` or ``changed``."""


class FoundPictures:
    """The chosen picture of each sample, read from a table that is sorted by sample.

    Args:
        path: of the table.
        number: samples that have a picture.
        is_cut: one of the pictures does not show its whole sample.
    """

    def __init__(self, path: Path, *, number: int, is_cut: bool) -> None:
        self._stored = StoredRows(path)
        self._number, self.is_cut = number, is_cut
        self._next = 0

    def __len__(self) -> int:
        return self._number

    def of(self, first: int, number: int) -> dict[int, Found]:
        """Return the pictures of consecutive samples; to be called in the order of the samples."""
        some = self._stored.rows(self._next, number)
        own = some.slice(0, int(np.searchsorted(some["sample"].to_numpy(), first + number)))
        self._next += len(own)
        return {row["sample"]: _found(row) for row in own.to_pylist()}


def _found(row: dict[str, Any]) -> Found:
    is_moved = row["how"] == "looks"
    return Found(
        placement=Placement(**{name: row[name] for name in _PLACE}) if is_moved else None,
        **{name: row[name] for name in ("how", "source", "path", "sha256", "colours")},
    )
