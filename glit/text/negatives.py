"""Make false sentences of true ones by changing one word or phrase.

attribute    a colour, size, pattern, material ... of a thing
count        how many there are
object       the thing itself
position     where in the picture it is
relation     left of, above, behind ... turned round

Words come from :mod:`glit.text.lexicon`, their role from a part-of-speech tagger (TextBlob). What
would be true of the image cannot be known; what the caption says elsewhere is left out.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from glit.text.lexicon import (
    GROUPS,
    OPPOSITES,
    OTHER_SIDE,
    SINGULARS,
    canonical,
    others,
    plural,
)
from glit.text.phrases import noun_spans

KINDS = ("attribute", "count", "object", "position", "relation")

_WORD = re.compile(r"\w+")
_SAYS = re.compile(r"(?:is|are|was|were|and|looks?),? $|, $", re.IGNORECASE)
"""Pattern of the words before an adjective that is said of a thing: "is small, red and plain"."""
_ENDS = "left|right|corner|side|edge"
_CENTRE = "middle|centre|center"
_PLACE = re.compile(
    rf"\b(?:at|in|on) the (?:(?:{_CENTRE}) of the (?:top|bottom|left|right)|{_CENTRE}|left|right"
    rf"|(?:top|upper|bottom|lower)(?:[ -](?:left|right))?)(?: corner| side| edge)?"
    r"(?: of the (?:picture|image|photo|photograph|scene|frame))?"
    rf"\b(?! of\b|[ -](?:{_ENDS})\b)",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"\b(?:no|not|none|nor|nothing|nobody|nowhere|neither|never|cannot|without|lack(?:s|ing)?)\b"
    r"|n['’]t\b",
    re.IGNORECASE,
)
_BOUND = re.compile(
    r"\b(?:(?:more|fewer|less|greater) than|at (?:least|most)|up to|over|under|about|around|almost"
    r"|nearly|roughly|approximately) $",
    re.IGNORECASE,
)
"""Words before a number that make it a limit. Another number may then be true too: where there are
more than three dogs, there are more than two."""
_RELATION = re.compile(rf"\b(?:{'|'.join(OPPOSITES)})\b", re.IGNORECASE)
_SIDE = re.compile(rf"\b(?:{'|'.join(OTHER_SIDE)})\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FalseSentence:
    """A sentence that was true before one word or phrase was changed."""

    kind: str
    """The kind, one of :data:`KINDS`."""
    text: str
    claim: frozenset[str]
    """The words that a true sentence of the caption must not hold all of."""
    new: str
    """The words in the place of the truth."""


def negatives(
    sentence: str, caption: Sequence[str], *, most: int, draw: random.Random
) -> list[FalseSentence]:
    """Make up to ``most`` false sentences of a sentence, of as many kinds as there are.

    A sentence that denies something has none: of "There is no dog", "There is no cat" may be true.

    Args:
        sentence: said to be true of the image.
        caption: all sentences of the image.
        most: false sentences.
        draw: decides among those that can be made.

    Raises:
        MissingExtraError: TextBlob is not installed.

    >>> said = ["Two dogs lie on the left."]
    >>> for each in negatives(said[0], said, most=2, draw=random.Random(0)):
    ...     print(each.kind, "|", each.text)
    count | Seven dogs lie on the left.
    position | Two dogs lie on the right.
    """
    said = [_content(each) for each in caption]
    places = [found[0].lower() for each in caption for found in _PLACE.finditer(each)]
    by_kind: dict[str, list[FalseSentence]] = {kind: [] for kind in KINDS}
    for each in _made(sentence, places) if not _DENIED.search(sentence) else ():
        if not any(each.claim <= words for words in said):
            by_kind[each.kind].append(each)
    turns = zip_longest(
        *(_mixed(group, frozenset().union(*said), draw) for group in by_kind.values())
    )
    found = {each.text: each for turn in turns for each in turn if each is not None}
    return list(found.values())[:most]


def _mixed(
    group: list[FalseSentence], said: frozenset[str], draw: random.Random
) -> Iterator[FalseSentence]:
    """In turns what the caption says of something else, and what it does not say: a model that sees
    only the second kind learns which words are rare, without looking at the image."""
    told = [each for each in group if _words(each.new) <= said]
    fresh = [each for each in group if each not in told]
    draw.shuffle(told)
    draw.shuffle(fresh)
    return (each for pair in zip_longest(told, fresh) for each in pair if each is not None)


def replaced(text: str, start: int, end: int, new: str) -> str:
    """The text with ``text[start:end]`` replaced, and the article before it made to fit.

    >>> replaced("It is a red hat.", 8, 11, "orange")
    'It is an orange hat.'
    """
    if text[start:end][:1].isupper():
        new = new[:1].upper() + new[1:]
    vowel = new.startswith((*"aeiou", "hour"))
    before = re.sub(r"\b(A|a)n? $", lambda found: f"{found[1]}{'n' * vowel} ", text[:start])
    return before + new + text[end:]


def _made(sentence: str, places: Sequence[str]) -> Iterator[FalseSentence]:
    """All false sentences that differ from the true one in one word or phrase.

    Args:
        sentence: the true one.
        places: phrases for places in the sentence's caption, lower case.
    """
    yield from _of_words(sentence)
    changes = [
        *(
            ("position", found, _contrary_places(found[0].lower(), places))
            for found in _PLACE.finditer(sentence)
        ),
        *(
            ("relation", found, [OPPOSITES[found[0].lower()]])
            for found in _RELATION.finditer(sentence)
        ),
    ]
    for kind, found, news in changes:
        for new in news:
            text = replaced(sentence, found.start(), found.end(), new)
            yield FalseSentence(kind=kind, text=text, claim=_content(text), new=new)


def _of_words(sentence: str) -> Iterator[FalseSentence]:
    """Changed attributes, counts and objects."""
    phrases = [(start, end) for start, end, _ in noun_spans(sentence)]
    for found in _WORD.finditer(sentence):
        start, end = found.span()
        inside = next(((a, b) for a, b in phrases if a <= start and end <= b), None)
        for kind, new in _others(found[0].lower()):
            if not _fits(kind, sentence, start, end, inside):
                continue
            text = replaced(sentence, start, end, new)
            if (kind == "attribute" and inside is None) or inside == (start, end):
                claim = _content(text)
            else:
                assert inside is not None
                claim = _words(text[inside[0] : inside[1] + len(text) - len(sentence)])
            yield FalseSentence(kind=kind, text=text, claim=claim, new=new)


def _others(word: str) -> Iterator[tuple[str, str]]:
    """Kinds and the words that exclude a word, plurals for plurals."""
    for kind in GROUPS:
        for new in others(kind, word):
            yield kind, new
    if word in SINGULARS:
        for new in others("object", SINGULARS[word]):
            yield "object", plural(new)


def _fits(kind: str, sentence: str, start: int, end: int, inside: tuple[int, int] | None) -> bool:
    """Return whether a word stands where a word of its kind does."""
    last = inside is not None and end == inside[1]
    if kind == "object":
        return last and inside != (start, end)
    if kind == "count" and _BOUND.search(sentence[:start]):
        return False
    if inside is not None and not last:
        return True
    return kind == "attribute" and _SAYS.search(sentence[:start]) is not None


def _contrary_places(phrase: str, told: Sequence[str]) -> list[str]:
    """False places for a true one: the opposite sides ("left" for "right").

    The centre has no opposite. It is exchanged with the other places in the caption: they replace
    it, and it replaces them. So every place is false about as often as it is true. If the centre
    replaced every side, a model could learn that the centre is mostly false, without looking at the
    image.

    Args:
        phrase: the true place, lower case.
        told: all places in the caption.
    """
    sides = [found.start() for found in _SIDE.finditer(phrase)]
    turned = [{side} for side in sides] + ([set(sides)] if len(sides) == 2 else [])
    exchanged = [place for place in told if bool(_SIDE.search(place)) != bool(sides)]
    return [*(_flipped(phrase, at) for at in turned), *dict.fromkeys(exchanged)]


def _flipped(phrase: str, at: set[int]) -> str:
    """The phrase with the sides that begin at these characters turned round."""
    return _SIDE.sub(
        lambda found: OTHER_SIDE[found[0]] if found.start() in at else found[0], phrase
    )


_PLACE_WORDS = {"top", "bottom", "left", "right", "centre", "foreground", "background"}
_RELATION_WORDS = {word for phrase in OPPOSITES for word in phrase.split()} - {"of", "in", "the"}
_KNOWN = _PLACE_WORDS | _RELATION_WORDS | {canonical(w) for g in GROUPS.values() for w in g}


def _content(sentence: str) -> frozenset[str]:
    """The words that a sentence says something with: known ones, and those of its noun phrases."""
    nouns = [sentence[start:end] for start, end, _ in noun_spans(sentence)]
    known = [word for word in _words(sentence) if word in _KNOWN]
    return frozenset(known).union(*map(_words, nouns))


def _words(text: str) -> frozenset[str]:
    """Words, each as the first of its class; those without meaning of their own left out."""
    found = (canonical(word) for word in _WORD.findall(text.casefold()))
    return frozenset(SINGULARS.get(word, word) for word in found) - {
        "a",
        "an",
        "the",
        "this",
        "that",
        "of",
        "seen",
        "picture",
    }
