"""The file of corrections: what a line may say, two writers, undoing, a writer that died."""

from __future__ import annotations

import json
import threading

import pytest

from glit.errors import InputError
from glit.review.corrections.journal import Journal, State, read_corrections, state_of

DATASET, SAMPLE, OTHER = "d" * 64, "a" * 64, "b" * 64
MOVED = State(boxes={0: (1.0, 2.0, 30.0, 40.0)})


def line(**changes) -> str:
    said = {
        "format": "glit-corrections", "schema_version": 1, "dataset": DATASET, "by": "anna",
        "at": "2026-01-01T00:00:00+00:00", "sample_id": SAMPLE, "did": "move",
        "state": {"boxes": {"0": [1, 2, 30, 40]}},
    }  # fmt: skip
    return json.dumps({**said, **changes})


def test_a_state_comes_back_from_its_line(tmp_path):
    state = State(
        boxes={0: (1.0, 2.0, 30.0, 40.5), 7: (0.0, 0.0, 9.0, 9.0)}, deleted=(2,),
        labels={7: "a dog"}, texts={1: "A dog."}, struck=(0,), pairs={1: 7, 2: None}, tags=("x",), note="n", right=True,
    )  # fmt: skip
    Journal(tmp_path / "c.jsonl", DATASET, by="anna").add(SAMPLE, state, "pair", seen=0)
    (found,), cut, _ = read_corrections(tmp_path / "c.jsonl", DATASET)
    assert (found.state, found.by, found.did, cut) == (state, "anna", "pair", False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 2: not a line of corrections"),
        ("[]", "line 2: not a line of corrections"),
        (line(dataset="e" * 64), "line 2: corrections of another dataset"),
        (line(schema_version=2), "line 2: corrections of version 2; this glit has 1"),
        (line(did="guess"), "line 2: .*want one of move"),
        (line(by=3), "line 2: not a line"),
        (line(state={"boxes": {"0": [1, 2, 30, float("nan")]}}), "line 2: .*no finite number"),
        (line(state={"boxes": {"0": [1, 2, 30]}}), "line 2: .*want four finite numbers"),
        (line(state={"boxes": {"x": [1, 2, 3, 4]}}), "line 2: no correction"),
        (line(state={"texts": {"0": "..."}}), "line 2: .*has no word; strike it"),
        (line(state={"struck": [True]}), "line 2: no correction"),
        (line(state={"colour": 1}), "line 2: no correction: unknown 'colour'"),
        (line(state=3), "line 2: no correction"),
    ],
)
def test_a_line_that_is_none_is_named_with_its_file(tmp_path, text, said):
    (tmp_path / "c.jsonl").write_text(line() + "\n" + text + "\n")
    with pytest.raises(InputError, match=rf"c\.jsonl, {said}"):
        read_corrections(tmp_path / "c.jsonl", DATASET)


@pytest.mark.parametrize("content", [None, "", '{"format": "gl'])
def test_no_file_and_one_without_a_whole_line_are_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "c.jsonl").write_text(content)
    with pytest.raises(InputError, match=r"c\.jsonl: (cannot be read|holds no correction)"):
        read_corrections(tmp_path / "c.jsonl", DATASET)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (State(struck=(3,)), "sentence 3: the sample has 3"),
        (State(texts={-1: "A dog."}), "sentence -1"),
        (State(pairs={0: 2}), "region 2: the sample has 2"),
        (State(pairs={0: 1}, deleted=(1,)), "its region 1 is deleted"),
        (State(deleted=(5,)), "region 5"),
        (State(boxes={-1: (5, 5, 9, 9)}), "boxes are counted from 0"),
        (State(boxes={0: (5, 5, 5, 9)}), "smaller than a pixel"),
        (State(boxes={0: (-1, 5, 8, 9)}), "leaves the 100x50 image"),
        (State(boxes={2: (1, 5, 8, 51)}), "leaves the 100x50 image"),
        (State(labels={2: "a dog"}), "region 2: the sample has 2"),
    ],
)
def test_what_a_sample_does_not_have_is_refused(state, said):
    with pytest.raises(InputError, match=said):
        state.check(sentences=3, regions=2, width=100, height=50)


def test_undoing_goes_back_step_by_step_also_after_a_restart(tmp_path):
    first = Journal(tmp_path / "c.jsonl", DATASET, by="anna")
    first.add(SAMPLE, MOVED, "move", seen=0)
    first.add(SAMPLE, State(boxes=MOVED.boxes, struck=(1,)), "strike", seen=1)
    first.add(OTHER, State(right=True), "right", seen=0)
    again = Journal(tmp_path / "c.jsonl", DATASET, by="anna")
    assert again.last == OTHER
    assert [again.undo({SAMPLE, OTHER}) for _ in range(2)] == [OTHER, SAMPLE]
    assert again.of(OTHER)[0] is None and again.of(SAMPLE)[0] == MOVED
    third = Journal(tmp_path / "c.jsonl", DATASET, by="anna")
    assert third.undo({SAMPLE, OTHER}) == SAMPLE and third.of(SAMPLE)[0] is None
    with pytest.raises(InputError, match="nothing is left to undo"):
        third.undo({SAMPLE, OTHER})
    assert len(read_corrections(tmp_path / "c.jsonl", DATASET)[0]) == 6


def test_two_people_lose_no_line_and_see_what_the_other_did(tmp_path):
    anna, ben = (Journal(tmp_path / "c.jsonl", DATASET, by=name) for name in ("anna", "ben"))
    anna.add(SAMPLE, MOVED, "move", seen=0)
    with pytest.raises(InputError, match="anna changed this image meanwhile"):
        ben.add(SAMPLE, State(struck=(0,)), "strike", seen=0)
    assert ben.of(SAMPLE) == (MOVED, 1, "anna")
    both = State(boxes=MOVED.boxes, struck=(0,))
    ben.add(SAMPLE, both, "strike", seen=1)
    with pytest.raises(InputError, match="ben changed that image since"):
        anna.undo({SAMPLE, OTHER})
    assert ben.undo({SAMPLE, OTHER}) == SAMPLE
    found, _, _ = read_corrections(tmp_path / "c.jsonl", DATASET)
    assert [(each.by, each.did) for each in found] == [
        ("anna", "move"), ("ben", "strike"), ("ben", "undo"),
    ]  # fmt: skip
    assert found[-1].state == MOVED


def test_a_file_that_is_no_journal_is_left_alone(tmp_path):
    (tmp_path / "token.txt").write_text("a secret without a line break")
    with pytest.raises(InputError, match="its last line is none of glit"):
        Journal(tmp_path / "token.txt", DATASET, by="anna")
    assert (tmp_path / "token.txt").read_text() == "a secret without a line break"


def test_a_file_that_was_replaced_takes_no_more_lines(tmp_path):
    anna = Journal(tmp_path / "c.jsonl", DATASET, by="anna")
    anna.add(SAMPLE, MOVED, "move", seen=0)
    (tmp_path / "c.jsonl").unlink()
    with pytest.raises(InputError, match="was cut or replaced meanwhile"):
        anna.add(SAMPLE, State(note="more"), "note", seen=1)


def test_steps_of_samples_that_are_not_shown_are_not_undone(tmp_path):
    anna = Journal(tmp_path / "c.jsonl", DATASET, by="anna")
    anna.add(SAMPLE, MOVED, "move", seen=0)
    with pytest.raises(InputError, match="--where leaves out"):
        anna.undo({OTHER})
    assert anna.of(SAMPLE)[0] == MOVED


def test_many_writers_at_once_keep_every_line(tmp_path):
    def write(name: str) -> None:
        journal = Journal(tmp_path / "c.jsonl", DATASET, by=name)
        for number in range(20):
            journal.add(name * 64, State(note=str(number)), "note", seen=number)

    threads = [threading.Thread(target=write, args=(name,)) for name in "xyz"]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    found, cut, _ = read_corrections(tmp_path / "c.jsonl", DATASET)
    assert len(found) == 60 and not cut


def test_the_unfinished_line_of_a_writer_that_died_is_removed_before_the_next(tmp_path):
    file = tmp_path / "c.jsonl"
    file.write_text(line() + "\n" + line()[:40])
    found, cut, _ = read_corrections(file, DATASET)
    assert len(found) == 1 and cut
    journal = Journal(file, DATASET, by="anna")
    assert journal.cut and journal.of(SAMPLE)[1] == 1
    journal.add(SAMPLE, State(struck=(0,)), "strike", seen=1)
    assert [each.did for each in read_corrections(file, DATASET)[0]] == ["move", "strike"]


def test_a_whole_last_line_without_a_line_break_counts(tmp_path):
    file = tmp_path / "c.jsonl"
    file.write_text(line() + "\n\n" + line(did="strike"))
    assert [len(read_corrections(file, DATASET)[0]), read_corrections(file, DATASET)[1]] == [
        2,
        False,
    ]
    journal = Journal(file, DATASET, by="anna")
    assert not journal.cut
    journal.add(SAMPLE, State(struck=(0,)), "edit", seen=2)
    found, _, _ = read_corrections(file, DATASET)
    assert [each.did for each in found] == ["move", "strike", "edit"]
    assert found[-1].where.endswith("line 4")


def test_a_file_that_cannot_be_written_says_so(tmp_path):
    with pytest.raises(InputError, match="its folder does not exist"):
        Journal(tmp_path / "no" / "c.jsonl", DATASET, by="anna")
    with pytest.raises(InputError, match="cannot be written"):
        Journal(tmp_path, DATASET, by="anna")


def test_texts_are_normalised_and_of_one_line():
    assert state_of({"texts": {"0": " Cafe\u0301\n here. "}}).texts == {0: "Caf\u00e9 here."}
