"""Extract the noun phrases of a sentence and its head phrase.

"A small ring can be seen above the striped cross." tells of "A small ring"; its embedding as a
whole is as close to the cross. Words are tagged by TextBlob, whose lexicon comes with the package.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from glit.recipes.extras import require

_INSIDE = {"DT", "PRP$", "CD", "JJ", "JJR", "JJS", "VBN", "VBG", "RB", "POS"}
_STARTS = {"DT", "PRP$"}
_PLACES = {
    "left", "right", "top", "bottom", "front", "back", "middle", "center", "centre", "side",
}  # fmt: skip
_NEVER_LAST = {"DT", "PRP$", "CD", "RB", "POS"}
NO_THINGS = {
    "all", "amount", "angle", "anything", "appearance", "area", "atmosphere", "back",
    "background", "bit", "bottom", "center", "centre", "color", "colour", "contrast", "corner",
    "couple", "day", "daylight", "design", "detail", "details", "direction", "distance", "each",
    "edge", "effect", "end", "environment", "everything", "feeling", "foreground", "frame",
    "front", "group", "half", "image", "impression", "it", "kind", "left", "light", "lighting",
    "line", "look", "lot", "middle", "moment", "mood", "moonlight", "night", "none", "nothing",
    "number", "one", "ones", "other", "others", "pair", "part", "pattern", "perspective",
    "photo", "photograph", "picture", "place", "portion", "position", "reflection", "rest",
    "right", "row", "scene", "season", "section", "sense", "shade", "shadow", "shape", "shot",
    "side", "size", "some", "something", "style", "sunlight", "surroundings", "time", "top",
    "type", "variety", "view", "way",
}  # fmt: skip
"""Last words of noun phrases that name no thing a detector could find."""


def head_phrases(sentences: Sequence[str]) -> list[str]:
    """The head phrase of each sentence, verbatim; the whole sentence if it has none.

    The first noun phrase that follows no preposition is taken; where all do, the first of all.

    Raises:
        MissingExtraError: TextBlob is not installed.

    >>> head_phrases(["On the left a small dog sleeps.", "It is snowing."])
    ['a small dog', 'It is snowing.']
    """
    require("phrases", needed_for="score.phrases = true")
    return [sentence[slice(*_head(sentence))] for sentence in sentences]


def phrases(sentence: str) -> tuple[str, ...]:
    """Noun phrases, verbs with a preposition, and places, each once, verbatim.

    Raises:
        MissingExtraError: TextBlob is not installed.

    >>> phrases("A small dog leans against the door on the left of it.")
    ('A small dog', 'the door', 'leans against', 'on the left of')
    """
    require("phrases", needed_for="phrases of a caption")
    return _phrases(sentence)


@lru_cache(maxsize=65536)
def _phrases(sentence: str) -> tuple[str, ...]:
    words = list(_tagged(sentence))
    places = list(_places(sentence, words))
    nouns = [sentence[start:end] for start, end, _ in noun_spans(sentence)]
    nouns = [text for text in nouns if text.lower().split()[-1] not in _PLACES]
    verbs = [
        sentence[start:end]
        for (start, stop, first), (_, end, second) in pairwise(words)
        if first.startswith("VB") and second in ("IN", "TO")
        if not any(other.endswith(sentence[start:stop]) for other in nouns)
        if not any(sentence[start:end] in place for place in places)
    ]
    return tuple(dict.fromkeys([*nouns, *verbs, *places]))


def _places(sentence: str, words: list[tuple[int, int, str]]) -> Iterator[str]:
    """ "on the left of", "next to": a preposition, perhaps a determiner, a place, perhaps "of"."""
    texts = [sentence[start:end].lower() for start, end, _ in words]
    at = 0
    while at < len(words):
        end = at
        if words[at][2] == "IN":
            place = at + 2 if at + 1 < len(words) and words[at + 1][2] == "DT" else at + 1
            if place < len(words) and texts[place] in _PLACES:
                end = place + 2 if texts[place + 1 : place + 2] == ["of"] else place + 1
        elif texts[at : at + 2] == ["next", "to"]:
            end = at + 2
        if end > at:
            yield sentence[words[at][0] : words[end - 1][1]]
        at = max(end, at + 1)


@lru_cache(maxsize=65536)
def _head(sentence: str) -> tuple[int, int]:
    spans = list(noun_spans(sentence))
    heads = [(start, end) for start, end, after_preposition in spans if not after_preposition]
    return (heads or [(start, end) for start, end, _ in spans] or [(0, len(sentence))])[0]


def object_spans(sentence: str) -> list[tuple[int, int]]:
    """Character spans of the noun phrases that name things a detector could find, in order.

    Raises:
        MissingExtraError: TextBlob is not installed.

    >>> text = "In the background of the picture a small dog sleeps on two red cushions."
    >>> [text[start:end] for start, end in object_spans(text)]
    ['a small dog', 'two red cushions']
    """
    require("phrases", needed_for="ground.enabled = true")
    return [
        (start, end)
        for start, end, _ in noun_spans(sentence)
        if sentence[start:end].lower().split()[-1] not in NO_THINGS
    ]


def head_span(sentence: str) -> tuple[int, int]:
    """Character span of the sentence's head phrase; see :func:`head_phrases`."""
    require("phrases", needed_for="ground.enabled = true")
    return _head(sentence)


def noun_spans(sentence: str) -> Iterator[tuple[int, int, bool]]:
    """Character spans of noun phrases in order, and whether a preposition stands before them.

    Wants TextBlob, as :func:`phrases` does.
    """
    phrase: list[tuple[int, int, str]] = []
    after_preposition = before = False
    for start, end, tag in [*_tagged(sentence), (len(sentence), len(sentence), "")]:
        noun = tag.startswith("NN")
        # after a determiner or an adjective the tagger's verbs are nouns: "the striped cross"
        inside = noun or tag in _INSIDE or (tag == "VB" and bool(phrase))
        if phrase and (not inside or tag in _STARTS):
            yield from _closed(phrase, after_preposition)
            phrase = []
        if inside:
            if not phrase:
                after_preposition = before
            phrase.append((start, end, tag))
        before = tag in ("IN", "TO")


def _closed(
    phrase: list[tuple[int, int, str]], after_preposition: bool
) -> Iterator[tuple[int, int, bool]]:
    tags = [tag for _, _, tag in phrase]
    while phrase and (tags[-1] in _NEVER_LAST or _is_verb_after_noun(tags)):
        phrase, tags = phrase[:-1], tags[:-1]
    if any(tag.startswith("NN") or tag == "VB" for _, _, tag in phrase):
        yield phrase[0][0], phrase[-1][1], after_preposition


def _is_verb_after_noun(tags: list[str]) -> bool:
    """ "a man wearing" is a man."""
    return tags[-1] in ("VBG", "VBN") and any(tag.startswith("NN") for tag in tags[:-1])


def _tagged(sentence: str) -> Iterator[tuple[int, int, str]]:
    """Words and punctuation with their places in the sentence and their Penn Treebank tags."""
    from textblob.en import tag

    position = 0
    for word, kind in tag(sentence):
        found = sentence.find(word, position)
        if found >= 0:  # the tagger rewrites some characters; such a word belongs to no phrase
            position = found + len(word)
            yield found, position, kind.split("-")[0]
