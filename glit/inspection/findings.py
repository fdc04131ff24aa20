"""Findings of an audit, and the counts that they are made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from glit.inspection.kinds import KINDS, Severity

MOST_EXAMPLES = 5
_DETAIL_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """An item with a fault."""

    name: str
    """The image's name, as the file has it."""
    detail: str
    """What is wrong with it."""
    picture: bytes = field(default=b"", repr=False)
    """A WebP thumbnail; empty if none was asked for or there is no picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Faults of one kind."""

    code: str
    """One of :data:`glit.inspection.kinds.KINDS`."""
    severity: Severity
    sentence: str
    """The fault in words."""
    of: str
    """What is counted, such as ``boxes``."""
    looked_at: int
    at_fault: int
    share: float
    """``at_fault / looked_at``."""
    examples: tuple[Example, ...]
    repair: str = ""
    """A command that repairs it; empty if glit has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An estimate of the share of wrong pairs, or of pairs that fit badly."""

    of: str
    """What is counted, such as ``pairs``."""
    method: str
    """Where the estimate is from, in words."""
    claim: str = "wrong"
    """What the share is of: ``wrong`` pairs, or ``below the middle``, pairs whose text fits its own
    box worse than half of the boxes of other images. Most wrong pairs are not below the middle, and
    some right ones are."""
    items: int
    share: float
    at_least: float
    at_most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """Result of an audit."""

    what: str
    format: str
    images: int
    """Entries looked at."""
    findings: tuple[Finding, ...]
    """Kinds with a fault, worst first: errors by share, then warnings by share."""
    clean: tuple[str, ...]
    """Codes of kinds that were looked for and not found."""
    skipped: tuple[tuple[str, str], ...]
    """Codes of kinds that were not looked for, each with the reason."""
    licences: tuple[tuple[str, int], ...] = ()
    """Stated licences with their images, most frequent first."""
    estimates: tuple[Estimate, ...] = ()

    @property
    def has_errors(self) -> bool:
        """True if a fault is an error."""
        return any(each.severity == "error" for each in self.findings)


class Tally:
    """Counts of items looked at and at fault, with the first examples of each kind.

    Args:
        listener: is called with the code and the name of every fault.
    """

    def __init__(self, *, listener: Callable[[str, str], None] | None = None) -> None:
        self.looked_at: Counter[str] = Counter()
        self.at_fault: Counter[str] = Counter()
        self.examples: dict[str, list[Example]] = {}
        self._listener = listener

    def look(self, code: str, number: int = 1) -> None:
        """Count items that are looked at."""
        self.looked_at[code] += number

    def fault(
        self, code: str, name: str, detail: str, picture: Callable[[], bytes] | None = None
    ) -> None:
        """Count an item at fault; an image is an example of a kind only once."""
        self.at_fault[code] += 1
        if self._listener is not None:
            self._listener(code, name)
        found = self.examples.setdefault(code, [])
        if len(found) < MOST_EXAMPLES and not (found and found[-1].name == name):
            shown = b"" if picture is None else picture()
            detail = detail[:_DETAIL_CHARS]
            found.append(Example(name=name[:_DETAIL_CHARS], detail=detail, picture=shown))

    def count(self, code: str, number: int, faults: Iterable[tuple[str, str]]) -> None:
        """Count items that are looked at, and those at fault: names and details."""
        self.look(code, number)
        for name, detail in faults:
            self.fault(code, name, detail)

    def findings(self, repair: Callable[..., str]) -> tuple[Finding, ...]:
        """The findings, worst first.

        Args:
            repair: gives the command that repairs a kind, of its code, the examples and their
                number.
        """
        made = []
        for code, number in self.at_fault.items():
            kind, looked_at = KINDS[code], max(self.looked_at[code], number)
            made.append(
                Finding(
                    code=code, severity=kind.severity, sentence=kind.sentence, of=kind.of,
                    looked_at=looked_at, at_fault=number, share=number / looked_at,
                    examples=tuple(self.examples[code]),
                    repair=repair(code, examples=self.examples[code], at_fault=number),
                )
            )  # fmt: skip
        return tuple(sorted(made, key=lambda each: (each.severity, -each.share, each.code)))
