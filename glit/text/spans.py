"""Map character spans of sentences to token spans, exactly, for any text.

Tokenizers report character offsets that are wrong around byte-level pieces, lower-casing and
normalisation. So no offset is used here: the caption is cut at its sentence boundaries, the
pieces are tokenised, and lengths are added up. Where the pieces' tokens are not the caption's
own tokens (a boundary inside a run of punctuation), the tokens shared with the text before and
after the boundary find it instead, and a token that lies across it belongs to both sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

Span = tuple[int, int]
Encode = Callable[[Sequence[str]], list[list[int]]]
"""Token ids of each text: no start or end token, special tokens in the text read as text."""


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
