"""False sentences: what is changed, and what is left out."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from glit.scenes.captions import object_sentence
from glit.scenes.layout import draw_scene
from glit.scenes.vocabulary import PLACE_NAMES
from glit.text.lexicon import GROUPS, OPPOSITES, others
from glit.text.negatives import KINDS, FalseSentence, negatives, replaced


def made(sentence: str, *further: str, most: int = 999) -> list[FalseSentence]:
    return negatives(sentence, [sentence, *further], most=most, draw=random.Random(0))


def texts(kind: str, sentence: str, *further: str) -> set[str]:
    return {each.text for each in made(sentence, *further) if each.kind == kind}


@pytest.mark.parametrize(
    ("kind", "sentence", "wanted"),
    [
        ("attribute", "There is a big dog.", {"There is a small dog.", "There is a medium dog."}),
        ("attribute", "The door is open.", {"The door is closed."}),
        ("attribute", "A glass stands on the table.", set()),  # the thing, not what it is made of
        ("object", "A shirt hangs there.", {
            "A hat hangs there.", "A jacket hangs there.", "A dress hangs there.",
            "A skirt hangs there.", "A scarf hangs there.",
        }),
        ("object", "Three churches are there.", {
            "Three houses are there.", "Three bridges are there.", "Three towers are there.",
            "Three castles are there.",
        }),
        ("object", "Two men are there.", {
            "Two women are there.", "Two boys are there.", "Two girls are there.",
        }),
        ("object", "Two forks are there.", {
            f"Two {things} are there."
            for things in ("cups", "bottles", "plates", "bowls", "spoons", "knives")
        }),
        ("position", "A dog sits at the bottom right of the picture.", {
            "A dog sits at the top right of the picture.",
            "A dog sits at the bottom left of the picture.",
            "A dog sits at the top left of the picture.",
        }),
        ("position", "A dog is in the lower left corner.", {
            "A dog is in the upper left corner.", "A dog is in the lower right corner.",
            "A dog is in the upper right corner.",
        }),
        ("position", "On the left sits a dog.", {"On the right sits a dog."}),
        ("position", "A dog is in the middle of the top.", {
            "A dog is in the middle of the bottom.",
        }),
        ("position", "A dog is in the centre.", set()),
        ("position", "At the top left of the bed is a dog.", set()),
        ("position", "A cat in the garden sleeps.", set()),
        ("relation", "A dog is left of the bed.", {"A dog is right of the bed."}),
        ("relation", "On the left of the bed is a dog.", {"On the right of the bed is a dog."}),
        ("relation", "In the foreground a dog sleeps.", {"In the background a dog sleeps."}),
        ("relation", "A man stands in front of it.", {"A man stands behind it."}),
    ],
)  # fmt: skip
def test_what_is_made(kind: str, sentence: str, wanted: set[str]) -> None:
    assert texts(kind, sentence) == wanted


@pytest.mark.parametrize(
    "sentence",
    [
        "There are no dogs on the left.",
        "The wall is not white.",
        "There isn't a red car on the road.",
        "There isn’t a red car on the road.",
        "A red car cannot be seen.",
        "The kitchen lacks a red door.",
        "Neither a dog nor a cat is there.",
        "A table stands there without a red chair.",
    ],
)
def test_a_sentence_that_denies_something_has_no_false_ones(sentence: str) -> None:
    assert made(sentence) == []


def test_the_centre_is_exchanged_with_places_of_other_things() -> None:
    dog, cat, bed = (
        "At the upper left is a dog.",
        "A cat is in the centre.",
        "A bed is on the left.",
    )
    assert texts("position", dog, cat, bed) == {
        "At the lower left is a dog.", "At the upper right is a dog.",
        "At the lower right is a dog.", "In the centre is a dog.",
    }  # fmt: skip
    assert texts("position", cat, dog, bed) == {
        "A cat is at the upper left.",
        "A cat is on the left.",
    }
    assert texts("position", bed, dog, cat) == {"A bed is on the right.", "A bed is in the centre."}


def test_no_place_is_mostly_false() -> None:
    scenes = [draw_scene(seed=3, index=index, level="hard") for index in range(150)]
    true, false = Counter[str](), Counter[str]()
    for scene in scenes:
        caption = [object_sentence(item, random.Random(0), template=0) for item in scene.objects]
        for item, sentence in zip(scene.objects, caption, strict=True):
            made = negatives(sentence, caption, most=100, draw=random.Random(0))
            moved = [each.new for each in made if each.kind == "position"]
            true[PLACE_NAMES[item.place]] += 1
            for place in moved:
                false[place] += 1 / len(moved)
    for place in PLACE_NAMES:
        assert 0.6 < false[place] / true[place] < 1.5, place


def test_counts_are_other_numbers() -> None:
    found = texts("count", "Two dogs sit on the floor.")
    assert "Three dogs sit on the floor." in found and len(found) == 8
    assert not texts("count", "One dog sits on the floor.")  # its noun would not fit
    for bound in ("More than", "At least", "Up to", "Fewer than"):
        assert not texts("count", f"{bound} three dogs sit on the floor.")


def test_what_the_caption_says_elsewhere_is_left_out() -> None:
    one = "A small red ring is left of the bed."
    assert "A small blue ring is left of the bed." in texts("attribute", one)
    for other in ("There is a small blue ring.", "The BLUE ring on the right is little."):
        assert "A small blue ring is left of the bed." not in texts("attribute", one, other)
    assert "A small blue ring is left of the bed." in texts("attribute", one, "The sky is blue.")
    place = "A dog lies at the top left."
    assert "A dog lies at the bottom left." in texts("position", place)
    assert "A dog lies at the bottom left." not in texts(
        "position", place, "At the bottom left is a dog."
    )


def test_words_of_the_caption_and_others_take_turns() -> None:
    found = [
        each.new for each in made("A red dog sleeps.", "The cat is blue, the bed is green.")
        if each.kind == "attribute"
    ]  # fmt: skip
    assert {found[0], found[2]} == {"blue", "green"} and "cat" not in found
    assert not {found[1], *found[3:]} & {"blue", "green"}


def test_kinds_take_turns_and_the_draw_decides() -> None:
    sentence = "Two red dogs at the top sit behind the wooden table."
    first = made(sentence, most=5)
    assert [each.kind for each in first] == list(KINDS)
    assert made(sentence, most=5) == first
    again = negatives(sentence, [sentence], most=5, draw=random.Random(1))
    assert [each.kind for each in again] == list(KINDS) and again != first
    assert len({each.text for each in made(sentence)}) == len(made(sentence))
    assert made("It is quiet.") == made("") == []


@pytest.mark.parametrize(
    ("text", "span", "new", "wanted"),
    [
        ("An old dog.", (3, 6), "new", "A new dog."),
        ("It is a red hat.", (8, 11), "orange", "It is an orange hat."),
        ("It is a ring.", (8, 12), "hourglass", "It is an hourglass."),
        ("Two dogs.", (0, 3), "six", "Six dogs."),
        ("Utah red.", (5, 8), "blue", "Utah blue."),
    ],
)
def test_articles_and_capitals_fit(text: str, span: tuple[int, int], new: str, wanted: str) -> None:
    assert replaced(text, *span, new) == wanted


def test_a_word_excludes_the_others_of_its_group_and_they_it() -> None:
    for kind, words in GROUPS.items():
        for word, (own, *_) in words.items():
            assert word in own and not set(own) & set(others(kind, word))
            assert all(own[0] in others(kind, other) for other in others(kind, word))
    assert all(new in OPPOSITES for new in OPPOSITES.values())
    assert others("object", "tuba") == []
