"""Ask a language model for false sentences, and check its answers."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher

from glit.text.faults import caption_fault

CHANGES = {
    "attribute": "one colour, size, material or other attribute is wrong",
    "count": "the number of things is wrong",
    "object": "one thing is replaced by another thing",
    "position": "a thing is at another place in the image",
    "relation": "two things stand to each other in another way, such as behind for in front of",
    "negation": "what it says is denied",
    "addition": "one thing is added that the image does not show",
}
"""By kind: what is false about the sentence."""
_SHARED = 0.6
"""Least share of characters that a changed sentence has in common with the true one; of 2,000 pairs
of sentences of DOCCI's captions, 7 % have as many."""
_WORD = re.compile(r"\w+(?:['’]\w+)*")


def question(sentence: str, caption: str, kinds: Sequence[str]) -> str:
    """The prompt that asks for a false sentence of each kind, as JSON.

    >>> print(question("A dog runs.", "A dog runs. It is wet.", ["negation"]))
    This is the description of an image:
    <BLANKLINE>
    A dog runs. It is wet.
    <BLANKLINE>
    Change this sentence of it so that it is false of the image, and change nothing else in it:
    <BLANKLINE>
    A dog runs.
    <BLANKLINE>
    Answer with one JSON object with a sentence under each key:
    "negation": what it says is denied.
    Nothing that the description says may make them true.
    """
    wanted = "\n".join(f'"{kind}": {CHANGES[kind]}.' for kind in kinds)
    parts = [
        "This is the description of an image:",
        caption,
        "Change this sentence of it so that it is false of the image, and change nothing else in "
        "it:",
        sentence,
        f"Answer with one JSON object with a sentence under each key:\n{wanted}\n"
        f"Nothing that the description says may make them true.",
    ]
    return "\n\n".join(parts)


def usable(
    answers: Mapping[str, str],
    sentence: str,
    caption: Sequence[str],
    kinds: Sequence[str],
    *,
    language: str,
) -> dict[str, str]:
    """The answers that are a changed sentence, by kind, in the order of ``kinds``.

    Left out are texts that are empty, refuse, loop or are in another language, that say what a
    sentence of the caption or an answer before them says, that have little in common with the
    sentence, and additions of nothing new. Whether what is left is false of the image is not known.

    Args:
        answers: what the model wrote, by kind.
        sentence: the true one.
        caption: all true ones of the image.
        kinds: those that were asked for.
        language: of the captions, as ``en``.

    >>> said = {"count": "Two dogs run.", "negation": "A dog runs.", "object": "I see a truck here"}
    >>> usable(said, "A dog runs.", ["A dog runs."], [*said], language="en")
    {'count': 'Two dogs run.'}
    """
    taken = {_plain(each) for each in caption}
    known = {word for each in caption for word in _words(each)}
    found: dict[str, str] = {}
    for kind in kinds:
        text = " ".join(unicodedata.normalize("NFC", answers.get(kind, "")).split())
        plain = _plain(text)
        if not plain or plain in taken or caption_fault(text, language=language):
            continue
        if _shared(sentence, text) < _SHARED:
            continue
        if kind == "addition" and not set(_words(text)) - known:
            continue
        taken.add(plain)
        found[kind] = text
    return found


def _shared(sentence: str, other: str) -> float:
    """The share of characters that stand in both in the same order, of the shorter one, 0 to 1.

    Denials and additions may be longer than their sentence, so the longer one does not count.
    """
    here, there = sentence.casefold(), other.casefold()
    blocks = SequenceMatcher(None, here, there, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks) / min(len(here), len(there))


def _plain(text: str) -> str:
    return " ".join(_words(text))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
