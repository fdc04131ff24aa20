"""Map character spans: to token spans, exactly, for any text; and along with a text that changes.

Tokenizers report character offsets that are wrong around byte-level pieces, lower-casing and
normalisation. So no offset is used here: the caption is cut at its sentence boundaries, the
pieces are tokenised, and lengths are added up. Where the pieces' tokens are not the caption's
own tokens (a boundary inside a run of punctuation), the tokens shared with the text before and
after the boundary find it instead, and a token that lies across it belongs to both sentences.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence

Span = tuple[int, int]
Encode = Callable[[Sequence[str]], list[list[int]]]
"""Token ids of each text: no start or end token, special tokens in the text read as text."""
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]"
)
"""Letters of scripts that write words without spaces, or particles onto them: Thai, Lao, Burmese,
Khmer, Japanese, Chinese, Korean."""


def locate(pieces: Iterable[str], text: str) -> list[Span]:
    """Character spans of consecutive pieces of ``text``, without outer whitespace.

    Pieces are looked for in order, each after the end of the one before; pieces of whitespace
    give no span.

    Raises:
        ValueError: a piece does not occur where it should.
    """
    spans: list[Span] = []
    position = 0
    for piece in pieces:
        stripped = piece.strip()
        if not stripped:
            continue
        start = text.find(stripped, position)
        if start < 0:
            raise ValueError(f"{stripped[:40]!r} does not occur after character {position}")
        position = start + len(stripped)
        spans.append((start, position))
    return spans


def token_spans(text: str, spans: Sequence[Span], encode: Encode) -> list[Span]:
    """Token span ``[start, end)`` of every character span; the start token counts as 0.

    Args:
        text: the caption.
        spans: character spans in order, not overlapping.
        encode: token ids of texts, see :data:`Encode`.

    Returns:
        One span per character span, in the caption's full tokenisation (nothing cut off).
    """
    pieces: list[str] = []
    position = 0
    for start, end in spans:
        pieces += [text[position:start], text[start:end]]
        position = end
    pieces.append(text[position:])
    whole, *parts = encode([text, *pieces])
    if [token for part in parts for token in part] == whole:
        return _add_up([len(part) for part in parts], num_spans=len(spans))
    return [_bounded(text, span, whole, encode) for span in spans]


def _add_up(lengths: list[int], *, num_spans: int) -> list[Span]:
    """Lengths alternate: text between sentences, sentence, text between, …"""
    result: list[Span] = []
    position = 1
    for index in range(num_spans):
        start = position + lengths[2 * index]
        position = start + lengths[2 * index + 1]
        result.append((start, position))
    return result


def _bounded(text: str, span: Span, whole: list[int], encode: Encode) -> Span:
    """The span where pieces do not add up; exact unless a token lies across a boundary.

    Where the text after (before) a boundary has the caption's own last (first) tokens, the
    boundary lies between two tokens; else the tokens shared from the other side bound the span.
    """
    before, until, since, after = encode(
        [text[: span[0]], text[: span[1]], text[span[0] :], text[span[1] :]]
    )
    if _common_suffix(whole, since) == len(since):
        start = len(whole) - len(since)
    else:
        start = _common_prefix(whole, before)
    if _common_prefix(whole, until) == len(until):
        end = len(until)
    else:
        end = len(whole) - _common_suffix(whole, after)
    return start + 1, max(end, start) + 1


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    for index, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return index
    return min(len(a), len(b))


def _common_suffix(a: Sequence[int], b: Sequence[int]) -> int:
    return _common_prefix(a[::-1], b[::-1])


class CleanText:
    """A text in NFC, perhaps without outer whitespace, and where its characters went.

    Every change that glit makes to a caption of the user goes through here, so that spans of the
    user, which count the characters of the text as it was given, can follow.

    Args:
        given: the text.
        strip: whether whitespace at both ends goes.
    """

    def __init__(self, given: str, *, strip: bool = False) -> None:
        kept = given.strip() if strip else given
        self._given, self._lead = given, len(given) - len(given.lstrip()) if strip else 0
        self._is_same = unicodedata.is_normalized("NFC", kept)
        self.text = kept if self._is_same else unicodedata.normalize("NFC", kept)

    def span(self, start: int, end: int) -> Span:
        """The characters of ``text`` that those of the given one became.

        A span that begins or ends inside a letter and its marks takes the whole letter.

        >>> CleanText(" Cafe\\u0301 a door", strip=True).span(7, 13)
        (5, 11)

        Raises:
            ValueError: the given text has no such span.
        """
        if not 0 <= start < end <= len(self._given):
            raise ValueError(f"[{start}, {end}] is no span of {len(self._given)} characters")
        first, last = self._moved(start, -1), self._moved(end, 1)
        if first >= last:
            raise ValueError(f"[{start}, {end}] holds nothing but whitespace")
        return first, last

    def _moved(self, index: int, step: int) -> int:
        """Return where a place went; from inside a letter to its start or its end."""
        at = index - self._lead
        if self._is_same:
            return min(max(at, 0), len(self.text))
        kept = self._given[self._lead :]
        at = min(max(at, 0), len(kept))
        while not _divides(kept, at):
            at += step
        return min(len(unicodedata.normalize("NFC", kept[:at])), len(self.text))


def _divides(text: str, at: int) -> bool:
    """Return whether the two parts of a text can be normalised one by one."""
    parts = text[:at], text[at:]
    one_by_one = "".join(unicodedata.normalize("NFC", part) for part in parts)
    return one_by_one == unicodedata.normalize("NFC", text)


def find_phrase(text: str, phrase: str, *, ignore_case: bool = False) -> Span | None:
    """The first place of a phrase in a text, as whole words; None where there is none.

    A place that is a part of a compound ("man" in "man-made") counts only if there is no other.
    Writing without spaces between words has no whole words; there every place counts.

    >>> find_phrase("A manhole beside a man.", "man")
    (19, 22)
    """
    words = unicodedata.normalize("NFC", phrase).split()
    if not words:
        return None
    pattern = re.compile(r"\s+".join(map(re.escape, words)), re.IGNORECASE * ignore_case)
    compound = None
    at = 0
    while match := pattern.search(text, at):
        start, end = match.span()
        at = start + 1
        if _is_joined(text, start) or _is_joined(text, end):
            continue
        if not (_is_hyphenated(text, start - 1) or _is_hyphenated(text, end)):
            return start, end
        compound = compound or (start, end)
    return compound


def same_words(text: str, other: str) -> bool:
    """Return whether two texts are equal but for case, whitespace and normalisation.

    >>> same_words("red  Door", "Red door"), same_words("ed door.", "red door")
    (True, False)
    """
    one, two = (unicodedata.normalize("NFC", each).casefold().split() for each in (text, other))
    return one == two


def _is_joined(text: str, at: int) -> bool:
    """Return whether the characters before and after a place belong to one word."""
    if not 0 < at < len(text):
        return False
    if unicodedata.category(text[at]).startswith("M"):
        return True
    before, after = text[at - 1], text[at]
    if unicodedata.category(before).startswith("M"):
        before = "a"  # a mark ends a letter
    is_word = all(each.isalnum() or each == "_" for each in (before, after))
    return is_word and not (_UNSPACED.match(text[at - 1]) or _UNSPACED.match(after))


def _is_hyphenated(text: str, at: int) -> bool:
    """Return whether a hyphen with letters on both sides stands at a place."""
    return (
        0 < at < len(text) - 1
        and text[at] in "-\u2010\u2011"
        and text[at - 1].isalnum()
        and text[at + 1].isalnum()
    )
