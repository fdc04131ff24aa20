"""The share of recommended pairs that a person left as right, by label, source and probability."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glit.dataset.by_hand import by_hand_of
from glit.review.corrections.journal import State

_BINS = 10
_NO_LABEL, _NOT_KNOWN = "(no label)", "(not known)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Judged pairs of one kind."""

    kind: str
    """``label``, ``source`` or ``probability``."""
    name: str
    pairs: int
    right: int

    @property
    def precision(self) -> float:
        """The share that is right."""
        return self.right / self.pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Recommended pairs, those with a region of their own, that a person judged."""

    pairs: int
    right: int
    groups: tuple[Group, ...]
    """By kind; labels by falling number of pairs."""

    def as_json(self) -> dict[str, Any]:
        """Numbers for a script."""
        found: dict[str, Any] = {"pairs": self.pairs, "right": self.right}
        for group in self.groups:
            own = {"pairs": group.pairs, "right": group.right, "precision": group.precision}
            found.setdefault(group.kind, {})[group.name] = own
        return found


Judged = tuple[Mapping[str, Any], Mapping[str, Any], bool]
"""A pair and its region as values of the columns, and whether it is right."""


def judged_pairs(row: Mapping[str, Any], state: State) -> Iterable[Judged]:
    """The recommended pairs of a sample that a person called right as it then stood.

    A pair is right if its sentence was neither edited nor struck and still has the same box.
    """
    if not state.right:
        return
    by_hand = {each["sentence"] for each in by_hand_of(row)}
    for pair in row["pairs"]:
        if pair["sentence"] in by_hand:  # a person's own
            continue
        number, region = pair["sentence"], pair["region"]
        touched = number in state.texts or number in state.struck
        moved = region in state.boxes or region in state.deleted
        if not pair["global_wins"]:
            same = state.pairs.get(number, region) == region
            yield pair, row["regions"][region], same and not touched and not moved


def precision(judged: Iterable[Judged]) -> Precision:
    """Count judged pairs by kind."""
    counts: dict[tuple[str, str], list[int]] = {}
    pairs = right = 0
    for pair, region, is_right in judged:
        pairs, right = pairs + 1, right + is_right
        for key in (
            ("label", region["label"].lower() or _NO_LABEL),
            ("source", region["source"]),
            ("probability", _bin(pair["probability"])),
        ):
            counted = counts.setdefault(key, [0, 0])
            counted[0] += 1
            counted[1] += is_right
    order = ("source", "probability", "label")
    groups = [
        Group(kind=kind, name=name, pairs=counted[0], right=counted[1])
        for (kind, name), counted in counts.items()
    ]
    groups.sort(key=lambda g: (order.index(g.kind), -g.pairs if g.kind == "label" else 0, g.name))
    return Precision(pairs=pairs, right=right, groups=tuple(groups))


def _bin(probability: float | None) -> str:
    if probability is None:
        return _NOT_KNOWN
    low = min(int(probability * _BINS), _BINS - 1) / _BINS
    return f"{low:.1f} to {low + 1 / _BINS:.1f}"


def precision_lines(found: Precision, *, most: int = 10) -> Sequence[str]:
    """A small table for the terminal, of each kind the first lines."""
    if not found.pairs:
        return ["no recommended pair is judged yet: call samples right, corrected or not"]
    lines = [
        f"left as right: {found.right} of {found.pairs} pairs ({found.right / found.pairs:.0%})"
    ]
    for kind in dict.fromkeys(group.kind for group in found.groups):
        own = [group for group in found.groups if group.kind == kind]
        lines.append(f"  by {kind}")
        width = max(len(group.name) for group in own[:most])
        lines += [
            f"    {group.name:<{width}}  {group.right:>5} of {group.pairs:<5} {group.precision:.0%}"
            for group in own[:most]
        ]
        if len(own) > most:
            lines.append(f"    and {len(own) - most} more (--json has all)")
    return lines
