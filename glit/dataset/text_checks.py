"""Check the texts of a dataset's rows: the sentences, and captions of several kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from glit.data.captions import has_words, is_kind
from glit.data.schema import CAPTION, CAPTIONS


def caption_breaches(row: dict[str, Any]) -> Iterator[str]:
    """Yield the faults of a row's captions; none where there are no captions, or the column is of
    somebody's own stage."""
    found = row.get(CAPTIONS[0]) or []
    if not all(isinstance(each, dict) and [*each] == CAPTION.names for each in found):
        return
    for each in found:
        if not is_kind(each["kind"]):
            yield f"captions: {each['kind']!r} is no kind"
        if not has_words(each["text"]):
            yield f"captions: the one of the kind {each['kind']!r} has no words"
    seen = Counter((each["kind"], each["source"]) for each in found)
    for (kind, source), number in seen.items():
        if number > 1:
            yield f"captions: {number} of the kind {kind!r} and the source {source!r}"
    if found and row["caption"] not in [each["text"] for each in found]:
        yield "captions: its caption is not among them"


def sentence_breaches(caption: str, sentences: list[dict[str, Any]], context: int) -> Iterator[str]:
    """Yield the faults of a caption's sentences.

    Args:
        caption: of the row.
        sentences: values of the column.
        context: text window, tokens.
    """
    char_end = 0
    for index, s in enumerate(sentences):
        if caption[s["char_start"] : s["char_end"]] != s["text"]:
            yield f"sentence {index}: its character span does not give its text"
        if s["char_start"] < char_end:
            yield f"sentence {index}: overlaps the one before"
        char_end = s["char_end"]
        if not 1 <= s["token_start"] < s["token_end"]:
            yield f"sentence {index}: empty token span"
        if s["in_window"] != (s["token_end"] <= context - 1):
            yield f"sentence {index}: in_window is wrong"


def breaches_alone(row: dict[str, Any], context: int) -> Iterator[str]:
    """Yield the faults of a row of captions alone.

    Args:
        row: of a data file, as plain values, without regions.
        context: text window, tokens.
    """
    if not row["sentences"]:
        yield "no sentence, at least one is due"
        return
    yield from sentence_breaches(row["caption"], row["sentences"], context)
    yield from caption_breaches(row)
    of_regions = ("pairs", "similarity", "image_similarity", "phrase_similarity", "agreement")
    if found := [name for name in of_regions if row[name]]:
        yield f"no regions, but values in {', '.join(found)}"
