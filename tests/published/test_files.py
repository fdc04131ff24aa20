"""Annotation files read piece by piece."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from annotations import conversations, found, touch
from hypothesis import given
from hypothesis import strategies as st

from glit.data import json_files as files
from glit.errors import InputError
from glit.inputs.published import read_annotations


def test_a_long_array_is_read_no_further_than_asked(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(files, "CHUNK", 100)
    source = tmp_path / "share.json"
    source.write_text(json.dumps(conversations(9), indent=1)[:-300])
    touch(tmp_path / "sam/images/sa_0.jpg")
    kept = read_annotations("sharegpt4v", source, images=None, split=None, limit=1)
    assert kept[0].captions == ('Caption 0. It has [brackets], "quotes" and {}.',)
    with pytest.raises(InputError, match="not the sharegpt4v annotations as published"):
        read_annotations("sharegpt4v", source, images=None, split=None)


@given(
    values=st.lists(st.dictionaries(st.text(max_size=3), st.text() | st.integers(), max_size=3)),
    indent=st.sampled_from([None, 0, 2]),
    chunk=st.integers(1, 30),
)
def test_an_array_in_pieces_is_the_array(
    values: list[dict], indent: int | None, chunk: int
) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "CHUNK", chunk)
        path = Path(folder) / "x.json"
        path.write_text(json.dumps(values, indent=indent, ensure_ascii=False), encoding="utf-8")
        assert list(files.json_array(path)) == values


@pytest.mark.parametrize(
    "text", ["", "{}", "[", '[{"a": 1}', '[{"a": 1},', "[{} {}]", "[{},]", "[{}][{}]"]
)
def test_what_is_no_array_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ValueError):
        list(files.json_array(path))


def test_a_line_without_an_end_is_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(files, "MOST_ENTRY", 20)
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n{"a": "' + "b" * 40)
    with pytest.raises(ValueError, match="line 2: more than 20 characters"):
        list(files.json_lines(path))


def test_a_line_separator_inside_a_caption_ends_no_line(tmp_path: Path) -> None:
    row = {"split": "test", "image_file": "test_00000.jpg", "description": "One\u2028two."}
    source = tmp_path / "docci_descriptions.jsonlines"
    source.write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    touch(tmp_path / "images/test_00000.jpg")
    assert list(found("docci", source).values()) == [("One\u2028two.",)]


@pytest.mark.parametrize("line", [
    ["stats", "s3://bucket/docci.jsonl", "--format", "docci"],
    ["import", "s3://bucket/docci.jsonl", "-o", "out.jsonl", "--format", "docci", "--images", "."],
    ["eval", "retrieval", "mini-matcher", "s3://bucket/docci.jsonl", "--format", "docci"],
    ["eval", "segment", "mini-matcher", "s3://bucket/docci.jsonl", "--format", "voc"],
])  # fmt: skip
def test_annotations_at_an_address_are_named_as_they_were_given(line, run_glit) -> None:
    done = run_glit(*line)
    assert done.code == 2
    assert done.errors.startswith("glit: s3://bucket/docci.jsonl: an address; annotations are read")
