"""Spans move with a caption; phrases are found as whole words."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glit.text.spans import CleanText, find_phrase, same_words

PIECES = st.lists(
    st.sampled_from(
        ["a", "e\u0301", "\u00e9", "o\u0323\u0302", " ", "\n", "\u1100\u1161", "😀", "İ"]
    ),
    min_size=1,
)


@given(PIECES, st.booleans())
def test_whole_letters_stay_what_they_are(pieces, strip):
    text = "".join(pieces)
    clean = CleanText(text, strip=strip)
    at = 0
    for piece in pieces:
        start, at = at, at + len(piece)
        if not piece.isspace():
            first, last = clean.span(start, at)
            assert clean.text[first:last] == unicodedata.normalize("NFC", piece)


def test_a_span_inside_a_letter_takes_the_letter():
    clean = CleanText("xe\u0301y")
    assert clean.span(1, 2) == clean.span(2, 3) == clean.span(1, 3) == (1, 2)


@pytest.mark.parametrize("span", [(-1, 2), (2, 2), (3, 2), (0, 9), (0, 2)])
def test_no_span(span):
    with pytest.raises(ValueError, match="is no span of 8 characters|nothing but whitespace"):
        CleanText("  a cat ", strip=True).span(*span)


@pytest.mark.parametrize(
    ("text", "phrase", "found"),
    [
        ("A manhole beside a man.", "man", (19, 22)),
        ("Woman at work.", "man", None),
        ("A man-made lake, a man.", "man", (19, 22)),
        ("A man-made lake.", "man", (2, 5)),
        ("His T-shirt is red.", "T-shirt", (4, 11)),
        ("İİ red door", "red door", (3, 11)),
        ("A red\ndoor.", "red door", (2, 10)),
        ("Ein Cafe\u0301 hier", "Cafe", None),
        ("这里有红门。", "红门", (3, 5)),
        ("고양이가 있다", "고양이", (0, 3)),
        ("कुत्ता", "कुत", None),
        ("snake_case", "case", None),
        ("a (red) door", "(red)", (2, 7)),
        ("a cat", "  ", None),
    ],
)
def test_a_phrase_is_found_as_whole_words(text, phrase, found):
    assert find_phrase(text, phrase) == found


def test_case():
    assert find_phrase("İ. A Red door", "red DOOR") is None
    assert find_phrase("İ. A Red door", "red DOOR", ignore_case=True) == (5, 13)
    assert same_words("Cafe\u0301  NOIR", "caf\u00e9 noir") and not same_words("ab", "a b")
