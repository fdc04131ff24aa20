"""The record of an audit: a JSON Lines file with its plan, then one line per verdict."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Literal, get_args

from glit.errors import InputError, cut
from glit.plain import MisfitError, limited
from glit.verdicts import lines
from glit.verdicts.agreement import cohens_kappa
from glit.verdicts.claims import Part

_FILE = lines.FileFormat(
    name="glit-audit", version=1, largest=1 << 28, what="the record of an audit"
)
Kind = Literal["pairs", "sentences", "phrases", "boxes", "repairs"]
"""The kind of items that are judged; ``repairs`` are pairs that a model names in place of those it
calls wrong."""
KINDS: tuple[str, ...] = get_args(Kind)
PARTS: Mapping[str, tuple[str, ...]] = {
    "pairs": ("sentence", "region"),
    "sentences": ("sentence",),
    "phrases": ("phrase", "region"),
    "boxes": ("region",),
    "repairs": ("sentence", "region"),
}
"""Names of the numbers that identify an item of a sample, by kind."""
AuditVerdict = Literal["right", "wrong", "none", "false", "unsure"]
"""``right``, or in which way it is not: see :data:`glit.review.label.verdicts.Verdict`; ``unsure``
if the person cannot tell."""
AUDIT_VERDICTS: tuple[str, ...] = get_args(AuditVerdict)
_MOST_PLACES = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim: at most a share ``error`` of some items is wrong."""

    of: Kind = "pairs"
    where: str = ""
    """An SQL condition for samples; empty for all."""
    error: float = limited(0.05, above=0, below=1)
    confidence: float = limited(0.95, least=0.5, below=1)
    part: Literal["all", "largest"] = "all"
    """Extent of the claim: all items, or the largest part, by probability, for which it is proved.
    """
    unsure: Literal["wrong", "right"] = "wrong"
    """The verdict that ``unsure`` counts as."""
    seed: int = limited(0, least=0, below=1 << 63)
    """Seed of the draw."""
    verdicts: int = limited(0, least=0)
    """Number of verdicts that people are ready to give; 0 leaves it to glit."""

    @property
    def alpha(self) -> float:
        """The chance that a false claim passes."""
        return 1 - self.confidence


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPlan:
    """A claim and which items are judged for it, fixed before any verdict is seen."""

    claim: Claim
    parts: tuple[Part, ...]
    """The parts that are tested, growing; one with everything if the claim is of all items."""
    typical: float = limited(least=0, most=1)
    """Mean uncertainty of the items; see :func:`glit.verdicts.draw.weights`."""
    verdicts: int = limited(least=1)
    """Number of verdicts that are planned."""
    expected: int | None = limited(default=None, least=1)
    """After how many half of all audits end, if the probabilities are true."""
    items: int = limited(least=1)
    items_sha256: str
    """Identity of the items and their probabilities."""
    judged_sha256: str = ""
    """SHA-256 of the opinions that narrow the bounds; empty without any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A person's verdict on one item."""

    sample_id: str
    sentence: int | None = limited(None, least=0, below=_MOST_PLACES)
    phrase: int | None = limited(None, least=0, below=_MOST_PLACES)
    region: int | None = limited(None, least=0, below=_MOST_PLACES)
    verdict: AuditVerdict
    by: str
    at: str = ""
    instead_of: AuditVerdict | None = None
    """The same person's verdict that this one replaces."""
    settles: bool = False
    """True if it settles a disagreement of two people, who both saw it."""

    def name(self, of: Kind) -> tuple[str, tuple[int, ...]]:
        """The sample, and the item in it.

        Raises:
            MisfitError: it is no item of that kind.
        """
        own = {key: getattr(self, key) for key in ("sentence", "phrase", "region")}
        given = {key for key, value in own.items() if value is not None}
        if given != {*PARTS[of]}:
            raise MisfitError(f"want {' and '.join(PARTS[of])} of one of the {of}")
        return self.sample_id, tuple(own[key] for key in PARTS[of])


Name = tuple[str, tuple[int, ...]]
"""A sample, and the item in it as :data:`PARTS` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The agreement of people on whether items are right."""

    items: int
    """Number of items that two people or more judged."""
    disputed: tuple[Name, ...]
    """The items with differing verdicts that nobody settled."""
    kappa: float | None
    """Cohen's, over all pairs of people on the same item, before disputes were settled; None
    without such an item."""


class Record:
    """An audit's plan and verdicts.

    Args:
        plan: of the audit.
        said: all verdicts, in the order of the files, each with its file and line.

    Raises:
        InputError: one contradicts another of the same person, or is of an item of another kind.
    """

    def __init__(self, plan: AuditPlan, said: Sequence[tuple[str, Said]]) -> None:
        self.plan = plan
        self.of: dict[Name, dict[str, Said]] = defaultdict(dict)
        """The last verdict of every person, by item."""
        self._settled: dict[Name, Said] = {}
        for where, each in said:
            self.add(each, where)

    def add(self, said: Said, where: str = "verdict") -> None:
        """Take one more verdict.

        Raises:
            InputError: see the class.
        """
        try:
            name = said.name(self.plan.claim.of)
        except MisfitError as error:
            raise InputError(f"{where}: {error}") from error
        if said.settles:
            self._settled[name] = said
            return
        before = self.of[name].get(said.by)
        if before is not None and said.verdict != before.verdict != said.instead_of:
            raise InputError(
                f"{where}: {cut(said.by)} said {before.verdict!r} of the same item before, and "
                f"{said.verdict!r} here; keep one of the two lines"
            )
        self.of[name][said.by] = said

    def __len__(self) -> int:
        return len(self.of)

    @property
    def people(self) -> tuple[str, ...]:
        """Names of those who judged, in alphabetical order."""
        return tuple(sorted({by for own in self.of.values() for by in own}))

    def is_wrong(self, name: Name) -> bool:
        """Return whether an item counts as wrong: as settled, or as anybody says."""
        if (settled := self._settled.get(name)) is not None:
            return not self._is_right(settled)
        return not all(map(self._is_right, self.of[name].values()))

    def _is_right(self, said: Said) -> bool:
        return said.verdict == "right" or (
            said.verdict == "unsure" and self.plan.claim.unsure == "right"
        )

    def agreement(self) -> Agreement:
        """Return how far people agree."""
        first, second = [], []
        disputed = []
        both = 0
        for name, own in self.of.items():
            words = ["right" if self._is_right(own[by]) else "wrong" for by in sorted(own)]
            both += len(words) > 1
            for a, b in combinations(words, 2):
                first.append(a)
                second.append(b)
            if len({*words}) > 1 and name not in self._settled:
                disputed.append(name)
        kappa = cohens_kappa(first, second)
        return Agreement(
            items=both, disputed=tuple(disputed), kappa=None if math.isnan(kappa) else kappa
        )

    def counts(self) -> Counter[str]:
        """Return how often each verdict was given."""
        return Counter(said.verdict for own in self.of.values() for said in own.values())

    def only(self, names: Sequence[Name]) -> Record:
        """The verdicts on some items alone, as they stand at last."""
        every = [
            dataclasses.replace(said, instead_of=None)
            for name in names
            for said in (*self.of[name].values(), *self._settled_of(name))
        ]
        return Record(self.plan, [("verdict", said) for said in every])

    def as_bytes(self) -> bytes:
        """The whole record as a file."""
        every = [
            lines.line_of(said)
            for name, own in self.of.items()
            for said in (*own.values(), *self._settled_of(name))
        ]
        return _FILE.header(self.plan) + b"".join(every)

    def _settled_of(self, name: Name) -> tuple[Said, ...]:
        return (self._settled[name],) if name in self._settled else ()


def is_audit(file: Path) -> bool:
    """Return whether a file begins as the record of an audit."""
    return _FILE.begins(file)


def begin(file: Path, plan: AuditPlan) -> None:
    """Write a file that holds the plan alone.

    Raises:
        InputError: it exists, or cannot be written.
    """
    lines.begin(file, _FILE.header(plan))


def append(file: Path, said: Said) -> Said:
    """Append a verdict with the time, on disk when this returns; return what was appended.

    Raises:
        InputError: the file cannot be written.
    """
    timed = dataclasses.replace(said, at=datetime.now(UTC).isoformat(timespec="seconds"))
    with lines.appending(file) as write:
        write(lines.line_of(timed))
    return timed


def read_audit(files: Sequence[Path]) -> Record:
    """Read an audit from the files of all people who judged.

    Raises:
        InputError: a file is no audit or of another plan, or a line is no verdict, or contradicts
            another of the same person.
    """
    plans: list[AuditPlan] = []
    said: list[tuple[str, Said]] = []
    for file in files:
        plan, rest = _FILE.read(file, AuditPlan)
        plans.append(plan)
        if plan != plans[0]:
            raise InputError(f"{file}: another plan than that of {files[0]}")
        for where, line in rest:
            try:
                said.append((where, lines.parsed(line, Said)))
            except ValueError as error:
                raise InputError(f"{where}: not a verdict ({error})") from error
    return Record(plans[0], said)
