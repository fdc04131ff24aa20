"""Read and write a model's verdicts: a JSON Lines file, apart from people's verdicts."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from glit.errors import InputError
from glit.verdicts import lines
from glit.verdicts.record import AuditVerdict, Kind, Name, Said

JUDGED = lines.FileFormat(name="glit-judged", version=1, largest=1 << 30, what="what a judge said")
_FEWEST = 40
"""The number of answers below which equal answers mean nothing."""
_SAME = 0.98
"""The share of one letter at which a judge answers by place: letters change their meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """The items that are judged, and the model that judges them."""

    of: Kind
    where: str = ""
    items_sha256: str
    model: str
    revision: str = ""
    backend: str
    prompt_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion(Said):
    """A model's verdict on one item."""

    letter: str = ""
    """Letter of its answer; the order of the answers differs from item to item."""
    word: str = ""
    """The false word that it names."""
    right_region: int | None = None
    """The region that it names in place of the one asked about."""
    again: bool = False
    """True if it was asked for the second time, to see whether it says the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A file of opinions."""

    judging: Judging
    of: dict[Name, Opinion] = field(default_factory=dict)
    again: dict[Name, Opinion] = field(default_factory=dict)
    sha256: str = ""

    @property
    def fault(self) -> str:
        """Why the opinions say nothing; empty if they may. Equal verdicts are no fault: of good
        items most are right."""
        letters = [each.letter for each in (*self.of.values(), *self.again.values())]
        if len(letters) < _FEWEST:
            return ""
        letter, number = Counter(letters).most_common(1)[0]
        if number < _SAME * len(letters):
            return ""
        return f"the model gave the letter {letter!r} to {number} of {len(letters)} questions"

    @property
    def note(self) -> str:
        """What to know of the opinions; empty if there is nothing."""
        verdicts = {each.verdict for each in self.of.values()}
        if len(verdicts) != 1 or len(self.of) < _FEWEST:
            return ""
        return f"all {len(self.of)} verdicts are {verdicts.pop()!r}: they narrow no bound"

    @property
    def repairs(self) -> dict[Name, int]:
        """Return for each pair that is called wrong the region that is named in its place."""
        return {
            name: each.right_region
            for name, each in self.of.items()
            if each.verdict == "wrong" and each.right_region is not None
        }

    @property
    def consistency(self) -> float | None:
        """The share of repeated questions that got the same verdict; None without any."""
        both = [name for name in self.again if name in self.of]
        same = sum(self.of[name].verdict == self.again[name].verdict for name in both)
        return same / len(both) if both else None

    def as_bytes(self) -> bytes:
        """The opinions as a file, without those of repeated questions."""
        return JUDGED.header(self.judging) + b"".join(map(lines.line_of, self.of.values()))


def read_judged(file: Path) -> Judged:
    """Read a file of opinions.

    Raises:
        InputError: it cannot be read, or a line is no opinion.
    """
    judging, rest = JUDGED.read(file, Judging)
    of: dict[Name, Opinion] = {}
    again: dict[Name, Opinion] = {}
    for where, line in rest:
        try:
            opinion = lines.parsed(line, Opinion)
            name = opinion.name(judging.of)
        except ValueError as error:
            raise InputError(f"{where}: not an opinion ({error})") from error
        (again if opinion.again else of)[name] = opinion
    content = JUDGED.header(judging) + b"".join(line + b"\n" for _, line in rest)
    return Judged(judging=judging, of=of, again=again, sha256=hashlib.sha256(content).hexdigest())


def chance_wrong(verdict: AuditVerdict) -> float:
    """Return how wrong an item is by a model's verdict alone."""
    return {"right": 0.0, "unsure": 0.5}.get(verdict, 1.0)
