"""What a writer calls finished is on the disk; conftest turns ``fsync`` off for all other tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from glit.review.corrections.journal import Journal, State
from glit.review.label.verdicts import JudgedPair, add_verdict
from glit.storage.store import Store
from glit.verdicts import lines

ID = "ab" * 32


def add_to_journal(file: Path) -> None:
    Journal(file, "cd" * 32, by="ann").add(ID, State(right=True), "right", seen=0)


def append_line(file: Path) -> None:
    lines.begin(file, b"{}\n")
    with lines.appending(file) as append:
        append(b'{"a": 1}\n')


WRITERS = {
    "store": lambda file: Store(str(file.parent)).write(file.name, b"content\n"),
    "journal": add_to_journal,
    "audit": append_line,
    "labels": lambda file: add_verdict(
        file, JudgedPair(sample_id=ID, sentence=0, region=1, verdict="right")
    ),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_all_of_it_is_flushed_before_it_counts(tmp_path, monkeypatch, writer):
    flushed: dict[int, int] = {}
    replaced: list[int] = []

    def fsync(handle):
        found = os.fstat(handle)
        flushed[found.st_ino] = found.st_size

    def replace(source, target, plain=os.replace):
        inode = os.stat(source).st_ino
        assert flushed.get(inode) == os.stat(source).st_size, "renamed before it was flushed"
        replaced.append(inode)
        plain(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    file = tmp_path / "file"
    WRITERS[writer](file)
    found = file.stat()
    assert flushed[found.st_ino] == found.st_size > 0
    if writer == "store":
        assert replaced == [found.st_ino]
        assert tmp_path.stat().st_ino in flushed, "the name is in the folder's own blocks"
