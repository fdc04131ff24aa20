"""What is wrong with captions that models wrote, and what only looks so."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import json_lines

from glit.scenes import write_scenes
from glit.text.faults import caption_fault, runs
from glit.text.languages import is_other_language

TEXT = "A brown dog lies on the grass. Behind it stand two trees and a house. The sky is clear."
GERMAN = "Ein Hund liegt auf der Wiese, und hinter ihm stehen zwei Bäume mit einem Haus."


def put_in(fault: str) -> list[str]:
    return [f"{fault} {TEXT}", TEXT.replace("grass. ", f"grass. {fault} "), f"{TEXT} {fault}"]


@pytest.mark.parametrize(
    "fault",
    ["five " * 20, "the red car, " * 4, "a tree and a bush and " * 5, "blah" * 30, "猫狗" * 20,
     "and it says “" + "no " * 30, "The sign is red here. " * 4, "Two cars.\nIt is a wide road.\n" * 4],
)  # fmt: skip
def test_what_repeats_anywhere_is_a_loop(fault) -> None:
    assert [caption_fault(text) for text in put_in(fault)] == ["looping"] * 3


@pytest.mark.parametrize(
    "fine",
    ["A very very large, blue, blue, and blue tile.", "It says “ha ha ha ha ha ha ha ha”.",
     "Left to right: red, white, red, white, red, white, red, white.",
     "The board reads 0 0 0 0 0 0 0 0.", "A chair, a table, a lamp, a chair, a table, a lamp.",
     "The sky is blue. The sky is blue.", "- a red cup\n- a blue cup\n- a red bowl\n- a blue bowl",
     "A sign on the door reads “Sorry, we're closed”.", "A sign says sorry we're closed.",
     "The note reads “I'm sorry, but I can't come”.", "A poster of an AI conference as an AI event.",
     "He looks as if to say 'I cannot describe it'.", "A sign says “Eingang für die Gäste”."],
)  # fmt: skip
def test_what_only_looks_so_passes(fine) -> None:
    assert [caption_fault(text) for text in put_in(fine)] == [None] * 3


@pytest.mark.parametrize(
    "fault",
    ["As an AI language model, I do not see.", "as an AI, I have no eyes.", "I cannot identify her.",
     "I'm sorry, but that is all.", "Please upload the image.", "I am unable to describe more."],
)  # fmt: skip
def test_a_refusal_is_found_anywhere(fault) -> None:
    assert [caption_fault(text) for text in put_in(fault)] == ["refusal"] * 3
    assert caption_fault(f'"{fault}"') == "refusal"


def test_what_is_nothing_but_a_sign_is_no_refusal() -> None:
    assert caption_fault("“Sorry, we're closed” hangs on a door.") is None
    assert caption_fault("Sorry we're closed, says a sign.") is None


def test_another_language_than_the_one_asked() -> None:
    assert caption_fault(GERMAN) == caption_fault("一只大狗躺在绿色的草地上。") == "wrong_language"
    assert caption_fault(TEXT, language="de") == "wrong_language"
    assert caption_fault("Большая собака лежит на траве, за ней стоят два дерева.") is not None
    assert caption_fault(TEXT[:30] + "它后面有两棵树。天空是蓝色的") == "wrong_language"
    assert caption_fault(GERMAN, language="de") is caption_fault(GERMAN, language="de-AT") is None
    assert caption_fault(GERMAN, language="sw") is None, "a language that is not known"
    assert caption_fault("一只大狗躺在绿色的草地上。", language="zh") is None
    assert not is_other_language("Ein Hund und ein Haus", "en"), "too short to tell"


def test_runs_are_told_with_their_words() -> None:
    assert list(runs(["a", "b", "a", "b", "a"])) == [(2, 5)]
    assert list(runs([])) == list(runs(["a"])) == []


def test_captions_of_scenes_have_no_fault(tmp_path: Path) -> None:
    write_scenes(tmp_path, num=60, seed=11, level="varied")
    rows = json_lines(tmp_path / "captions.jsonl")
    assert len(rows) == 60 and not any(caption_fault(row["caption"]) for row in rows)
