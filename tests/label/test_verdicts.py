"""A file of verdicts survives a full disk and refuses what is no verdict."""

from __future__ import annotations

import errno
import io
import json

import pytest

from glit.errors import InputError
from glit.review.label.verdicts import JudgedPair, add_verdict, read_verdicts

A, B, C = (JudgedPair(sample_id=name, sentence=0, region=1, verdict="right") for name in "abc")


def test_half_a_line_is_removed_by_the_next_verdict(tmp_path):
    file = tmp_path / "v.jsonl"
    add_verdict(file, A)
    whole = file.read_bytes()
    for half in (whole[:20], b"{", whole[:-2]):
        file.write_bytes(whole + half)
        assert [*read_verdicts(file)] == [A.key]
        add_verdict(file, B)
        assert [*read_verdicts(file)] == [A.key, B.key]
        assert file.read_bytes().startswith(whole) and file.read_bytes().count(b"\n") == 2


def test_a_whole_line_without_its_end_stays(tmp_path):
    file = tmp_path / "v.jsonl"
    add_verdict(file, A)
    file.write_bytes(file.read_bytes().rstrip())
    add_verdict(file, B)
    assert [*read_verdicts(file)] == [A.key, B.key]


def test_nothing_is_left_of_a_verdict_that_does_not_fit_on_the_disk(tmp_path, monkeypatch):
    file = tmp_path / "v.jsonl"
    add_verdict(file, A)
    before = file.read_bytes()
    write = io.FileIO.write

    class Full(io.FileIO):
        def write(self, data):
            if len(data) < 20:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(self, bytes(data)[:15])  # a part fits

    monkeypatch.setattr(type(file), "open", lambda self, mode, buffering: Full(self, "a+"))
    with pytest.raises(InputError, match="cannot be written \\(No space left"):
        add_verdict(file, B)
    monkeypatch.undo()
    assert file.read_bytes() == before
    add_verdict(file, B)
    assert [*read_verdicts(file)] == [A.key, B.key]


@pytest.mark.parametrize("text", ["hello", "path,caption"])
def test_another_file_is_refused_and_kept(tmp_path, text):
    file = tmp_path / "v.jsonl"
    file.write_text(text)
    for use in (read_verdicts, lambda file: add_verdict(file, A)):
        with pytest.raises(InputError, match="its last line is none of glit's"):
            use(file)
    assert file.read_text() == text
    file.write_text('{"path": "a.png"}')
    with pytest.raises(InputError, match="line 1: not a verdict"):
        read_verdicts(file)


GOOD = {"sample_id": "a", "sentence": 0, "region": 1, "verdict": "right"}


@pytest.mark.parametrize(
    "values",
    [
        {**GOOD, "sample_id": ["a"]}, {**GOOD, "sample_id": {}}, {**GOOD, "verdict": ["right"]},
        {**GOOD, "verdict": {}}, {**GOOD, "sentence": True}, {**GOOD, "region": 10**400},
        {**GOOD, "region": [1]}, {**GOOD, "region": float("nan")}, {**GOOD, "x": 1}, [GOOD], 3,
    ],
)  # fmt: skip
def test_what_is_no_verdict_is_named_by_its_line(tmp_path, values):
    file = tmp_path / "v.jsonl"
    file.write_text(f"{json.dumps(GOOD)}\n{json.dumps(values)}\n")
    with pytest.raises(InputError, match=r"v\.jsonl, line 2: (not a verdict|want a)"):
        read_verdicts(file)
    file.write_text("[" * 100_000 + "\n")
    with pytest.raises(InputError, match="line 1: not a verdict") as found:
        read_verdicts(file)
    assert len(str(found.value)) < 600
