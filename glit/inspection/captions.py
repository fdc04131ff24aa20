"""Check single captions, and spans of them."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator

from glit.inspection.items import Item, TextSpan
from glit.text.answers import clean_answer
from glit.text.faults import caption_fault
from glit.text.languages import text_language
from glit.text.spans import find_phrase, same_words

_CODES = {
    "empty_caption": "caption-empty", "refusal": "caption-refusal", "looping": "caption-looping",
    "wrong_language": "caption-language",
}  # fmt: skip
_SAID_CHARS = 120


def caption_faults(item: Item, language: str) -> Iterator[tuple[str, str]]:
    """Yield the faults of an image's captions."""
    if item.captions == ():
        yield "caption-empty", "has no caption"
    for caption in item.captions or ():
        answer = clean_answer(caption)
        if answer.cut or answer.lost:
            held = ", ".join([*answer.cut, *([repr(answer.lost)] if answer.lost else [])])
            yield "caption-garbled", f"{held}: {caption[:_SAID_CHARS]!r}"
        if reason := caption_fault(answer.text, language=language):
            yield _CODES[reason], repr(caption[:_SAID_CHARS])


def span_faults(item: Item) -> Iterator[tuple[str, str]]:
    """Yield the faults of the spans of an image's first caption."""
    caption = item.captions[0] if item.captions else ""
    for span in item.spans:
        if fault := _span_fault(caption, span):
            yield fault


def _span_fault(caption: str, span: TextSpan) -> tuple[str, str] | None:
    place = f"[{span.start}, {span.end}]"
    if not 0 <= span.start < span.end <= len(caption):
        if span.words and not _is_said(caption, span.words):
            return "text-outside", f"{span.words[:60]!r} is not in the caption"
        return "span-words", f"{place} is no span of {len(caption)} characters"
    found = caption[span.start : span.end]
    if span.words is not None and not same_words(found, span.words):
        if not _is_said(caption, span.words):
            return "text-outside", f"{span.words[:60]!r} is not in the caption"
        return "span-words", f"{place} is {found[:60]!r}, the file says {span.words[:60]!r}"
    if span.words is None and not found.strip():
        return "span-words", f"{place} holds nothing but whitespace"
    if span.words is None and (_cuts(caption, span.start) or _cuts(caption, span.end)):
        return "span-in-word", f"{place} is {found[:60]!r}"
    return None


def _is_said(caption: str, words: str) -> bool:
    return find_phrase(caption, words, ignore_case=True) is not None


def _cuts(text: str, at: int) -> bool:
    """Return whether a place is inside a word of letters that are written with spaces between."""
    if not 0 < at < len(text):
        return False
    return all(each.isalpha() and _is_spaced(each) for each in text[at - 1 : at + 1])


def _is_spaced(letter: str) -> bool:
    return unicodedata.name(letter, "").startswith(("LATIN", "CYRILLIC", "GREEK"))


def most_frequent_language(captions: Iterable[str]) -> str:
    """Code of the language that most captions are in; ``en`` if there are none.

    >>> most_frequent_language(["A dog sits on the grass.", "Ein Hund."])
    'en'
    """
    found = Counter(text_language(each, "en") for each in captions)
    return found.most_common(1)[0][0] if found else "en"
