"""Extract the noun phrases of a sentence and its head phrase.

"A small ring can be seen above the striped cross." tells of "A small ring"; its embedding as a
whole is as close to the cross. Words are tagged by TextBlob, whose lexicon comes with the package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from glit.recipes.extras import require
from glit.text.spans import find_phrase

_INSIDE = {"DT", "PRP$", "CD", "JJ", "JJR", "JJS", "VBN", "VBG", "RB", "POS"}
_STARTS = {"DT", "PRP$"}
_PLACES = {
    "left", "right", "top", "bottom", "front", "back", "middle", "center", "centre", "side",
}  # fmt: skip
_NEVER_LAST = {"DT", "PRP$", "CD", "RB", "POS"}
_COLOURS = {
    "beige", "black", "blonde", "blue", "brown", "cream", "gold", "golden", "gray", "green", "grey",
    "lavender", "orange", "pink", "purple", "red", "silver", "tan", "teal", "turquoise", "violet",
    "white", "yellow",
}  # fmt: skip
_MATERIALS = {
    "brick", "concrete", "fabric", "glass", "leather", "marble", "metal", "paper", "plastic",
    "steel", "stone", "wood",
}  # fmt: skip
_ADJECTIVES = _COLOURS | _MATERIALS | {"light", "rectangle", "round", "square"}
"""Nouns to the tagger, which also stand in a list of adjectives: "a small, square, black rug"."""
_VERBS = {
    "borders", "changes", "contains", "depicts", "displays", "extends", "faces",
    "features", "hangs", "leads", "lies", "points", "reading", "reads", "rests", "runs", "shines",
    "show", "shows", "sits", "spans", "stands", "stretches", "surrounds",
}  # fmt: skip
"""Plural nouns to the tagger, verbs after a noun in the singular: "the arm points up"."""
_BE = {"are", "be", "being", "can", "do", "does", "had", "has", "have", "is", "was", "were"}
_LETTERS = {
    "'": "P", "\u2019": "P", ",": ",", "and": "&", "or": "&", "no": "D", "more": "A", "human": "N",
    "medium": "A", "leaves": "S", "also": ".", "/": ".",
}  # fmt: skip
_TAGS = {
    "DT": "D", "PRP$": "D", "CD": "A", "JJ": "A", "JJR": "A", "JJS": "A", "RB": "R", "RBR": "R",
    "RBS": "R", "VBG": "G", "VBN": "V", "VBD": "V",
}  # fmt: skip
_DESCRIBED = re.compile(r"D[RAVK]*$")
_AFTER_VERB = {"IN", "TO", "RB", "RP", "JJ", "DT", '"'}
_AFTER_NOUN = {"IN", "VBZ", "VBP", "VBD", "MD", "WDT", "."}
_QUOTE = re.compile(r'"[^"]*"|\u201c[^\u201d]*\u201d')
_DETERMINERS = {"a", "an", "another", "each", "his", "her", "its", "one", "the", "their", "this"}
_PLAIN = _PLACES | {"a", "an", "entire", "lower", "the", "this", "that", "upper", "whole"}
NO_THINGS = _COLOURS - {"cream", "orange"} | {
    "air", "all", "amount", "angle", "angles", "anything", "appearance", "art", "atmosphere",
    "background", "bit", "bottom", "bottoms", "bunch", "camera", "center", "centers", "centre",
    "close", "close-up", "closeup", "color", "colors", "colour", "colours", "construction",
    "contrast", "corner", "corners", "couple", "coverage", "curve", "dark", "day", "daylight",
    "daytime", "design", "designs", "detail", "details", "direction", "directions", "display",
    "distance", "downtown", "each", "edge", "edges", "effect", "end", "ends", "environment",
    "evening", "everything", "eye-level", "fact", "feeling", "foreground", "formation", "front",
    "glow", "ground-level", "group", "groups", "half", "height", "image", "images", "impression",
    "indication", "it", "kind", "lack", "layers", "left", "level", "lighting", "location", "look",
    "lots", "lower", "material", "materials", "middle", "moisture", "moment", "mood", "moonlight",
    "morning", "motion", "movement", "nature", "night", "nighttime", "none", "nothing", "number",
    "one", "ones", "opposite", "order", "other", "others", "outdoor", "overhead", "pair", "part",
    "parts", "pattern", "patterns", "perspective", "photo", "photograph", "picture", "place",
    "point", "portion", "portions", "position", "quadrant", "quality", "rearview", "reflection",
    "reflections", "rest", "result", "right", "row", "rows", "same", "scene", "season", "section",
    "sections", "sense", "series", "shade", "shades", "shape", "shot", "side", "sides",
    "silhouette", "silhouettes", "size", "sizes", "some", "something", "style", "sunlight",
    "sunshine", "support", "surroundings", "texture", "textures", "thing", "things", "time", "top",
    "tops", "towards", "type", "types", "underside", "upper", "variety", "view", "views", "way",
    "ways", "width", "wind", "worm",
}  # fmt: skip
"""Last words of noun phrases that name no thing a detector could find."""
_BARE = {"area", "areas", "back", "base", "frame", "light", "lot", "surface"}
"""These name one only with a word that says of what: "a grassy area"."""
_OF = {
    "body", "bunch", "collage", "ear", "foot", "layer", "length", "level", "line", "mass", "patch",
    "piece", "pieces", "pile", "series", "set", "sets", "splotches", "sprig", "stack", "stacks",
    "strand", "strands", "strip",
}  # fmt: skip
"""Before "of" these name none: "a pile of hay" is hay."""


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
    words = list(_tagged(sentence))
    texts = [sentence[start:end].lower() for start, end, _ in words]
    return [
        (words[found.start()][0], words[found.end() - 1][1])
        for found in _THING.finditer(_letters(sentence, words))
        if _is_thing(texts, *found.span())
    ]


_MODIFIER = "(?:R*[AVK]|(?<=[DAVK])G)"
_HEAD = "(?:[NK][AVK]{0,3}|S(?=S))*[NKS]"
_THING = re.compile(
    f"(?:D(?:{_MODIFIER}+,){{2,}}|DR+|D?(?:{_MODIFIER}(?:(?:,?&|,)?{_MODIFIER})*)?){_HEAD}"
    f"(?:P+{_MODIFIER}*{_HEAD})*"
)
"""A noun phrase in the letters of :func:`_letters`."""


def _is_thing(texts: list[str], start: int, end: int) -> bool:
    """Return whether the noun phrase of these words names a thing."""
    first, last = texts[start], texts[end - 1]
    if first == "no" or last in NO_THINGS or (last in _OF and texts[end : end + 1] == ["of"]):
        return False
    if end - start == 1 and last in _COLOURS:
        return False
    if last in _BARE:
        return first in _DETERMINERS and any(text not in _PLAIN for text in texts[start : end - 1])
    made_of = texts[start - 1 : start] == ["of"] and "made" in texts[max(start - 3, 0) : start]
    return not (made_of and last in _MATERIALS)


def _letters(sentence: str, words: list[tuple[int, int, str]]) -> str:
    """A letter for each word.

    D determiner, A adjective or number, V participle, G word in -ing, R adverb, K colour, material
    or form, N noun, S plural noun, P apostrophe and s, "," and "&", "." all else
    and what is quoted.
    """
    quotes = [found.span() for found in _QUOTE.finditer(sentence)]
    letters = ""
    before = 0
    for (start, end, tag), (_, _, following) in pairwise([*words, (0, 0, ".")]):
        word = sentence[start:end].lower()
        letter = _letter(word, tag, letters, following)
        quoted = any(first <= start < last for first, last in quotes)
        letters += "." if quoted or (letter == "P" and start > before) else letter
        before = end
    return letters


def _letter(word: str, tag: str, letters: str, following: str) -> str:
    before = letters[-1:]
    if word in _LETTERS:
        return _LETTERS[word]
    if not word[0].isalnum():
        return "."
    if before == "P" and word == "s":
        return "P"
    if word in _ADJECTIVES:
        return "K"
    if word.isdigit():
        return "A"
    noun = "S" if word.endswith("s") else "N"
    described = before != "" and before in "DAVK"
    if tag in ("VB", "VBP", "VBZ"):
        return noun if described and word not in _BE | _VERBS else "."
    if tag == "VBG" and _DESCRIBED.search(letters) and following in _AFTER_NOUN:
        return "N"
    if tag.startswith("NN"):
        if following in _AFTER_VERB:
            late = word in _VERBS and before in ("N", "K", "S")
            if late or (word.endswith("ing") and not described and before != "N"):
                return "."
        if before == "S" and tag == "NN":
            return "."
        return "S" if tag in ("NNS", "NNPS") else "N"
    return _TAGS.get(tag, ".")


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

    position, is_next = 0, True
    for word, kind in tag(sentence):
        found = sentence.find(word, position)
        if not is_next:  # not inside the word that was passed over
            span = find_phrase(sentence[position:], word)
            found = -1 if span is None else position + span[0]
        is_next = found >= 0
        if is_next:  # the tagger rewrites some characters; such a word belongs to no phrase
            position = found + len(word)
            yield found, position, kind.split("-")[0]
