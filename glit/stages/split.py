"""Split: captions become sentences with exact character and token spans."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

from glit.backends.tokenizer import TextTokenizer
from glit.config import SplitConfig
from glit.errors import MissingExtraError, UserError
from glit.records import Drop, Sample, Sentence
from glit.spans import Span, locate, split_at_dots, token_spans
from glit.stages.base import ImageSource, Outcome

VERSION = 2
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
    import importlib

    segment = importlib.import_module("sentencex").segment  # compiled, without types

    def split(text: str) -> list[Span]:
        # it panics on some unusual spaces; plain ones of the same length keep every span
        plain = _UNUSUAL_SPACE.sub(" ", text)
        return locate(segment(language, plain), plain)

    return split


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


class SplitStage:
    """Sentences of every caption."""

    name: ClassVar[str] = "split"

    def __init__(self, config: SplitConfig, tokenizer: TextTokenizer) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._splitter = make_splitter(config.splitter, config.language)

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]:
        for sample in samples:
            assert sample.caption is not None
            sentences = self.sentences(sample.caption.text)
            if not sentences:
                yield Drop(reason="no_sentence", message="the splitter found no sentence")
            else:
                yield dataclasses.replace(sample, sentences=sentences)

    def sentences(self, caption: str) -> tuple[Sentence, ...]:
        """Sentences of one caption, in order."""
        spans = [
            span for span in self._splitter(caption) if any(map(str.isalnum, caption[slice(*span)]))
        ]
        tokens = token_spans(caption, spans, self._tokenizer.encode)
        room = self._config.short_context - 2
        return tuple(
            Sentence(
                text=caption[start:end],
                char_start=start,
                char_end=end,
                token_start=first,
                token_end=last,
                # the window's last place belongs to the end token
                in_window=last <= self._config.context - 1,
                truncated=last - first > room,
            )
            for (start, end), (first, last) in zip(spans, tokens, strict=True)
        )
