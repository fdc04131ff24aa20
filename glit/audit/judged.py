"""What a model said of every item: a JSON Lines file, kept apart from people's verdicts."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from glit.audit.record import AuditVerdict, Kind, Name, Said
from glit.errors import InputError, cut
from glit.plain import MisfitError, as_plain, from_plain

FORMAT, VERSION = "glit-judged", 1
_LONGEST = 1 << 30
"""Bytes of a file: some million opinions."""
_FEWEST = 40
"""Answers below which sameness tells nothing."""
_SAME = 0.98
"""The share of one letter at which a judge answers by place: letters change their meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """What is judged, and by which model."""

    of: Kind
    where: str = ""
    items_sha256: str
    model: str
    revision: str = ""
    backend: str
    prompt_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion(Said):
    """What a model said of one item."""

    letter: str = ""
    """Of its answer; the order of the answers differs from item to item."""
    word: str = ""
    """The false word that it names."""
    right_region: int | None = None
    """The region that it names in place of the one asked about."""
    again: bool = False
    """Whether it was asked for the second time, to see whether it says the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A file of opinions."""

    judging: Judging
    of: dict[Name, Opinion] = field(default_factory=dict)
    again: dict[Name, Opinion] = field(default_factory=dict)
    sha256: str = ""

    @property
    def fault(self) -> str:
        """Why the opinions say nothing; empty if they may."""
        answers = [*self.of.values(), *self.again.values()]
        if len(answers) < _FEWEST:
            return ""
        for what, values in (
            ("verdict", [each.verdict for each in answers]),
            ("letter", [each.letter for each in answers]),
        ):
            (value, number) = Counter(values).most_common(1)[0]
            if number >= (_SAME * len(answers) if what == "letter" else len(answers)):
                return (
                    f"the model gave the {what} {value!r} to {number} of {len(answers)} questions"
                )
        return ""

    @property
    def consistency(self) -> float | None:
        """The share of repeated questions that got the same verdict; None without any."""
        both = [name for name in self.again if name in self.of]
        same = sum(self.of[name].verdict == self.again[name].verdict for name in both)
        return same / len(both) if both else None

    def lines(self, names: Sequence[Name]) -> bytes:
        """The opinions on some items as a file."""
        return first_line_of(self.judging) + b"".join(line_of(self.of[name]) for name in names)


def first_line_of(judging: Judging) -> bytes:
    """The first line of a file."""
    said = {"format": FORMAT, "schema_version": VERSION, **as_plain(judging)}
    return (json.dumps(said) + "\n").encode()


def line_of(opinion: Opinion) -> bytes:
    """One more line."""
    return (json.dumps(as_plain(opinion)) + "\n").encode()


def read_judged(file: Path) -> Judged:
    """Read a file of opinions; a last line that was not finished is none.

    Raises:
        InputError: it cannot be read, or a line is no opinion.
    """
    try:
        if file.stat().st_size > _LONGEST:
            raise InputError(f"{file}: larger than {_LONGEST >> 20} MiB")
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror or error})") from error
    first, *rest = data.split(b"\n")
    try:
        values = json.loads(first)
        if not isinstance(values, dict) or values.pop("format", "") != FORMAT:
            raise ValueError(f"its first line is not of {FORMAT!r}")
        if (version := values.pop("schema_version", None)) != VERSION:
            raise ValueError(f"opinions of version {version!r}; this glit has {VERSION}")
        found = Judged(judging=from_plain(Judging, values), sha256=hashlib.sha256(data).hexdigest())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: not what a judge said ({cut(str(error))})") from error
    for number, line in enumerate(rest[:-1], start=2):
        try:
            opinion = from_plain(Opinion, json.loads(line))
            name = opinion.name(found.judging.of)
        except (ValueError, RecursionError, MisfitError) as error:
            where = f"{file}, line {number}"
            raise InputError(f"{where}: not an opinion ({cut(str(error))})") from error
        (found.again if opinion.again else found.of)[name] = opinion
    return found


def chance_wrong(verdict: AuditVerdict) -> float:
    """How wrong an item is by a model's verdict alone."""
    return {"right": 0.0, "unsure": 0.5}.get(verdict, 1.0)
