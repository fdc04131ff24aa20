"""Phrases that name things: by hand, on a hundred real captions, and at any text.

The captions and the rules by which they were marked are in README.md beside this file.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glit.text.phrases import object_spans
from glit.text.sentences import make_splitter

MARKED = Path(__file__).with_name("noun_phrases.jsonl")
Spans = set[tuple[int, int]]


@pytest.mark.parametrize(
    ("sentence", "things"),
    [
        ("A group of people and a pair of shoes.", ["people", "shoes"]),
        ("At the top of the tree a small bird sings.", ["the tree", "a small bird"]),
        ("A man wearing a red hat walks.", ["A man", "a red hat"]),
        ("Below are black, white and gray stones.", ["black, white and gray stones"]),
        ("A small, square, black rug lies there.", ["A small, square, black rug"]),
        ("The cat's left paw and the dogs' bowls.", ["The cat's left paw", "the dogs' bowls"]),
        ("Its arm points toward the sky.", ["Its arm", "the sky"]),
        ("The palm trees grow beside dark green leaves.", ["The palm trees", "dark green leaves"]),
        ("In the area is a grassy area.", ["a grassy area"]),
        ("A base made of metal under a metal base.", ["a metal base"]),
        ("No dogs, and no text on the wall.", ["the wall"]),
        ('A sign reads "Hot Dogs" in white letters.', ["A sign", "white letters"]),
        ("A close up view of an orange and ice cream is orange.", ["an orange", "ice cream"]),
        ("The wall is a light yellow, the sun visible.", ["The wall", "the sun"]),
        ("It is snowing.", []),
        ("", []),
    ],
)
def test_by_hand(sentence, things):
    assert [sentence[start:end] for start, end in object_spans(sentence)] == things


def test_on_real_captions():
    exact, heads = _f1(_marked())
    assert exact > 0.935
    assert heads > 0.945


@given(st.text(alphabet=st.sampled_from("a red, big dog's \"andthe'-1«’.s "), max_size=60))
def test_spans_of_any_text_are_in_order_and_hold_words(text):
    end = 0
    for start, stop in object_spans(text):
        assert end <= start < stop <= len(text)
        assert text[start:stop].strip() == text[start:stop]
        end = stop


def test_many_words_without_a_noun_take_no_time():
    assert object_spans("a red, " * 2000) == []


def _marked() -> list[tuple[str, Spans, Spans]]:
    """Each caption with the spans marked and the spans found."""
    split = make_splitter("sentencex", "en")
    marked = []
    for line in MARKED.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        caption = row["caption"]
        found = {
            (first + start, first + end)
            for first, last in split(caption)
            for start, end in object_spans(caption[first:last])
        }
        marked.append((caption, {(start, end) for start, end in row["phrases"]}, found))
    return marked


def _f1(marked: list[tuple[str, Spans, Spans]]) -> tuple[float, float]:
    """F1 of whole spans, and of their last words."""
    total = sum(len(want) + len(found) for _, want, found in marked)
    exact = sum(len(want & found) for _, want, found in marked)
    heads = sum(
        len({end for _, end in want} & {end for _, end in found}) for _, want, found in marked
    )
    return 2 * exact / total, 2 * heads / total
