"""Text to character spans of its sentences."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator

from glit.errors import MissingExtraError, UserError
from glit.spans import Span, locate

_UNUSUAL_SPACE = re.compile(r"[^\S\n ]")
Splitter = Callable[[str], list[Span]]


def make_splitter(name: str, language: str) -> Splitter:
    """The named splitter: text to character spans of its sentences.

    Raises:
        MissingExtraError: NLTK is not installed.
        UserError: NLTK's Punkt data is not on this machine.
    """
    if name == "dot":
        return split_at_dots
    if name == "punkt":
        return _punkt(language)
    assert name == "sentencex", name
    segment = importlib.import_module("sentencex").segment  # compiled, without types

    def split(text: str) -> list[Span]:
        # it panics on some unusual spaces; plain ones of the same length keep every span
        plain = _UNUSUAL_SPACE.sub(" ", text)
        return locate(segment(language, plain), plain)

    return split


def split_at_dots(text: str) -> list[Span]:
    """Spans that end at every full stop, as the papers' scripts cut.

    >>> split_at_dots("A cat. 1.5 m long.")
    [(0, 6), (7, 9), (9, 18)]
    """
    spans: list[Span] = []
    start = 0
    ends = [index + 1 for index, char in enumerate(text) if char == "."]
    for end in [*ends, len(text)]:
        piece = text[start:end]
        stripped = piece.strip()
        if stripped.strip("."):
            first = start + len(piece) - len(piece.lstrip())
            spans.append((first, first + len(stripped)))
        start = end
    return spans


def _punkt(language: str) -> Splitter:
    try:
        from nltk.tokenize.punkt import PunktTokenizer
    except ImportError as error:
        raise MissingExtraError(
            "nltk", extra="punkt", needed_for="split.splitter = 'punkt'"
        ) from error
    names = {"en": "english", "de": "german", "fr": "french", "es": "spanish", "it": "italian"}
    try:
        tokenizer = PunktTokenizer(names.get(language, language))
    except LookupError as error:
        raise UserError(
            "split.splitter = 'punkt': NLTK has no Punkt data here; run "
            "python -m nltk.downloader punkt_tab on a connected machine, or use 'sentencex'"
        ) from error
    return lambda text: _trimmed(tokenizer.span_tokenize(text), text)


def _trimmed(spans: Iterator[Span], text: str) -> list[Span]:
    result = []
    for start, end in spans:
        piece = text[start:end]
        left = start + len(piece) - len(piece.lstrip())
        right = start + len(piece.rstrip())
        if left < right:
            result.append((left, right))
    return result
