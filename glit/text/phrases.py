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


def head_phrases(sentences: Sequence[str]) -> list[str]:
    """The head phrase of each sentence, verbatim; the whole sentence if it has none.

    The first noun phrase that follows no preposition is taken; where all do, the first of all.

    Raises:
        MissingExtraError: TextBlob is not installed.

    >>> head_phrases(["On the left a small dog sleeps.", "It is snowing."])
    ['a small dog', 'It is snowing.']
    """
    require("phrases", needed_for="score.phrases = true")
    return [_head(sentence) for sentence in sentences]


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
def _head(sentence: str) -> str:
    phrases = [(sentence[start:end], after) for start, end, after in noun_spans(sentence)]
    heads = [text for text, after_preposition in phrases if not after_preposition]
    return (heads or [text for text, _ in phrases] or [sentence])[0]


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
