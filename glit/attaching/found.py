"""The user's picture for each sample, in arrays: 41 bytes each, 60 more if looks are compared."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from glit.attaching.placement import Placement

WAYS = {
    "bytes": "the same file",
    "pixels": "another file of the same pixels",
    "looks": "encoded again, resized, cut, padded, mirrored, turned or in other tones",
}
"""How a picture is found."""
COLOURS = ("same", "grey", "changed")
_WAYS = [*WAYS]
_PLACE = [each.name for each in dataclasses.fields(Placement)]
_LOOKS = np.dtype(
    [
        ("mirrored", "?"), ("turned", "i2"), ("left", "f8"), ("top", "f8"), ("right", "f8"),
        ("bottom", "f8"), ("shown", "f8"), ("apart", "f8"), ("pixels", "i8"), ("colours", "u1"),
    ]
)  # fmt: skip
_WHOLE = 0.98
"""Share of a published picture from which a found one shows all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A user's picture for a sample."""

    how: str
    """A key of :data:`WAYS`."""
    file: int
    """Its number among the user's files."""
    sha256: str
    placement: Placement | None = None
    """None for the same pixels."""
    shown: float = 1.0
    """Share of the published picture that it shows."""
    colours: str = "same"
    """One of :data:`COLOURS`."""
    apart: float = 0.0
    pixels: int = 0

    @property
    def is_whole(self) -> bool:
        """True if it shows the whole picture in unchanged tones."""
        return self.shown >= _WHOLE and self.colours == "same"

    @property
    def rank(self) -> tuple[Any, ...]:
        """Sorts the best of several pictures first."""
        upright = self.placement is None or self.placement.is_upright
        return (
            _WAYS.index(self.how), self.shown < _WHOLE, not upright, self.colours != "same",
            -self.pixels, self.apart, self.file,
        )  # fmt: skip


class FoundPictures:
    """The best picture of each sample.

    Args:
        number: of samples.
    """

    def __init__(self, number: int) -> None:
        self._way = np.full(number, len(_WAYS), np.uint8)
        self._file = np.zeros(number, np.int64)
        self._sha256 = np.zeros((number, 32), np.uint8)
        self._looks = np.empty(0, _LOOKS)

    def __len__(self) -> int:
        return int((self._way < len(_WAYS)).sum())

    def __contains__(self, sample: int) -> bool:
        return self._way[sample] < len(_WAYS)

    def get(self, sample: int) -> Found | None:
        """Return the picture of a sample; None if none was found."""
        if sample not in self:
            return None
        how = _WAYS[self._way[sample]]
        told: dict[str, Any] = {}
        if how == "looks":
            row = dict(zip(_LOOKS.names or (), self._looks[sample].tolist(), strict=True))
            told = {name: row[name] for name in ("shown", "apart", "pixels")}
            told["colours"] = COLOURS[row["colours"]]
            told["placement"] = Placement(**{name: row[name] for name in _PLACE})
        sha256 = self._sha256[sample].tobytes().hex()
        return Found(how=how, file=int(self._file[sample]), sha256=sha256, **told)

    def offer(self, sample: int, new: Found) -> None:
        """Keep a picture if the sample has none, or none that is as good."""
        before = self.get(sample)
        if before is not None and before.rank <= new.rank:
            return
        self._way[sample], self._file[sample] = _WAYS.index(new.how), new.file
        self._sha256[sample] = np.frombuffer(bytes.fromhex(new.sha256), np.uint8)
        if new.placement is not None:
            if not len(self._looks):
                self._looks = np.zeros(len(self._way), _LOOKS)
            place = [getattr(new.placement, name) for name in _PLACE]
            told = (new.shown, new.apart, new.pixels, COLOURS.index(new.colours))
            self._looks[sample] = (*place, *told)

    @property
    def is_cut(self) -> bool:
        """True if one of them does not show its whole sample."""
        of_looks = self._way == _WAYS.index("looks")
        return bool(len(self._looks) and (self._looks["shown"][of_looks] < 1).any())
