"""Keep the markers of lists ("1.", "a)", "iv.", "•") with the sentences that they belong to."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from glit.text.spans import Span

_BULLET = "[•⁃‣▪◦●]"
_LABEL = (
    r"\(?(?:(?P<number>\d{1,3})|(?P<letter>[A-Za-z])|(?P<roman>[ivx]{2,5}|[IVX]{2,5}))(?:\.\)|[.)])"
)
_ITEM = re.compile(rf"(?:(?<!\S)|(?<={_BULLET}))(?:{_BULLET}\s*)?{_LABEL}\s+(?=\S)")
_BULLETS = re.compile(rf"(?:(?<!\S){_BULLET}|^[^\S\n]*[-–*])\s*(?=[^\W_]|[\"“'(])", re.MULTILINE)
_ALONE = re.compile(rf"(?:{_BULLET}\s*)?{_LABEL}|{_BULLET}|[-–*]")
_LONGEST_MARKER = 12
_SIGNS = frozenset("•⁃‣▪◦●")
_FIRSTS = tuple(label + after for label in "1aAiI" for after in ".)")
"""Labels of first items: a text with a list has one, after one of ``_BEFORE`` or at its start; a
quick look."""
_BEFORE = (" ", "\n", "\t", "(", *_SIGNS)
_ENDED = re.compile(r"[.!?:;…。)\]\"”»]\s*$")
_ROMAN = {"i": 1, "v": 5, "x": 10}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marker:
    start: int
    end: int
    """Offset of the text of its item."""
    values: frozenset[tuple[str, int]]
    """Kinds of numbering and places in it; "i" is a letter and a Roman number."""


def keep_list_markers(text: str, spans: Sequence[Span]) -> list[Span]:
    """Sentence spans in which every marker of a list begins the sentence after it.

    Numbers and letters are a list if two or more follow one another from the first on (1, 2 or a,
    b); "It is in room 2." is none. A marker alone on its line, and a bullet, are markers anyway.

    >>> text = "1. A cat. 2. A dog."
    >>> keep_list_markers(text, [(0, 2), (3, 9), (10, 12), (13, 19)])
    [(0, 9), (10, 19)]
    """
    markers = [*_bullets(text), *_enumerated(text)]
    if not markers and all(end - start > _LONGEST_MARKER for start, end in spans):
        return list(spans)
    starts = sorted({start for start, _ in markers})
    cut = list(_cut(text, spans, starts))
    result: list[Span] = []
    waiting: int | None = None
    for start, end in cut:
        begin = start if waiting is None else waiting
        inside = any(a <= start < b for a, b in markers) and not _is_item(markers, start)
        if inside and waiting is None and result:
            begin = result.pop()[0]
        is_marker = _ALONE.fullmatch(text, begin, end) and _stands_first(text, begin, starts)
        if is_marker and end < cut[-1][1]:
            waiting = begin
            continue
        waiting = None
        result.append((begin, end))
    return result


def _is_item(markers: Sequence[Span], at: int) -> bool:
    return any(start == at for start, _ in markers)


def _stands_first(text: str, at: int, starts: Sequence[int]) -> bool:
    """Return whether a place is that of a marker, or the first of its line."""
    return at in starts or not text[:at].strip() or "\n" in text[len(text[:at].rstrip()) : at]


def _cut(text: str, spans: Sequence[Span], starts: Sequence[int]) -> Iterator[Span]:
    """The spans, cut before each of the places."""
    for first, last in spans:
        start = first
        for at in starts[bisect_left(starts, start + 1) : bisect_left(starts, last)]:
            end = len(text[:at].rstrip())
            if end > start:
                yield start, end
                start = at
        yield start, last


def _bullets(text: str) -> Iterator[Span]:
    if "\n" not in text and text.lstrip()[:1] not in "-–*" and not _SIGNS & set(text):
        return
    for match in _BULLETS.finditer(text):
        lead = len(match[0]) - len(match[0].lstrip())
        yield match.start() + lead, match.end()


def _enumerated(text: str) -> Iterator[Span]:
    """The markers of lists of two items or more."""
    near = [first for first in _FIRSTS if first in text]
    has_first = any(before + first in text for first in near for before in _BEFORE)
    if not has_first and not _ITEM.match(text):
        return
    chains: list[list[_Marker]] = []
    last: dict[str, tuple[int, list[_Marker]]] = {}
    for marker in _markers(text):
        fits = [
            last[kind][1]
            for kind, value in marker.values
            if kind in last and value == last[kind][0] + 1
        ]
        chain = fits[0] if fits else []
        if fits and not re.search(r"[^\W\d_]{2}", text[chain[-1].end : marker.start]):
            continue  # initials: A. B. Smith
        firsts = [kind for kind, value in marker.values if value == 1]
        if not fits:
            if not firsts or not _begins(text, marker.start):
                continue
            chains.append(chain)
        elif not _begins(text, marker.start) and not _capital(text, marker.end):
            continue
        chain.append(marker)
        for kind, value in marker.values:
            if not fits or last.get(kind, (0, None))[1] is chain:
                last[kind] = (value, chain)
    for chain in chains:
        if len(chain) > 1:
            yield from ((marker.start, marker.end) for marker in chain)


def _markers(text: str) -> Iterator[_Marker]:
    for match in _ITEM.finditer(text):
        values: set[tuple[str, int]] = set()
        if match["number"]:
            values.add(("number", int(match["number"])))
        elif match["letter"]:
            case = "small" if match["letter"].islower() else "capital"
            values.add((case, ord(match["letter"].lower()) - ord("a") + 1))
        roman = match["roman"] or match["letter"] or ""
        if roman.lower() in ("i", "v", "x") or match["roman"]:
            kind = "roman" if roman.islower() else "Roman"
            values.add((kind, _roman(roman.lower())))
        yield _Marker(start=match.start(), end=match.end(), values=frozenset(values))


def _roman(text: str) -> int:
    """
    >>> _roman("xiv")
    14
    """
    values = [_ROMAN[each] for each in text]
    return sum(-value if value < max(values[at:]) else value for at, value in enumerate(values))


def _begins(text: str, at: int) -> bool:
    """Return whether a sentence or a line may begin at a place."""
    before = text[:at]
    rest = before.rstrip()
    return not rest or "\n" in before[len(rest) :] or bool(_ENDED.search(rest[-1:]))


def _capital(text: str, at: int) -> bool:
    return text[at].isupper() or text[at] in "\"“'("
