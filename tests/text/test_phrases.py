"""Head phrases stand in their sentence and are what it tells of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glit.scenes.captions import write_caption
from glit.scenes.layout import draw_scene
from glit.text.phrases import head_phrases


@pytest.mark.parametrize(
    ("sentence", "head"),
    [
        ("A small ring can be seen above the striped white cross.", "A small ring"),
        ("The plain yellow cross is below the dotted ring.", "The plain yellow cross"),
        ("In the middle of the bottom one can see a large cross.", "a large cross"),
        ("To the right of the bus, a man wearing a red hat is waiting.", "a man"),
        ("Behind everything is a brick wall.", "a brick wall"),
        ("All of it is seen in dim moonlight.", "dim moonlight"),
        ("Two dogs and a cat sleep on the couch.", "Two dogs"),
        ("It is snowing.", "It is snowing."),
        ("«»", "«»"),
        ("", ""),
    ],
)
def test_by_hand(sentence, head):
    assert head_phrases([sentence]) == [head]


@given(st.text(max_size=80))
def test_any_text_holds_its_head(text):
    (head,) = head_phrases([text])
    assert head in text


def test_of_two_objects_in_a_scene_the_first_is_told_of():
    """The relation's first words name the object that the truth says the sentence is about."""
    told = found = 0
    for index in range(60):
        scene = draw_scene(1_000_007, index, level="hard")
        for sentence in write_caption(scene).sentences:
            if sentence.kind == "relation":
                (head,) = head_phrases([sentence.text])
                about = scene.objects[sentence.object]
                told += 1
                found += about.shape in head and about.colour in head
    assert told > 50 and found == told
