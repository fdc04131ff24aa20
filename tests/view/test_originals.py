"""Pictures of what was left out: only of the file that it was, and only from below its folder."""

from __future__ import annotations

import hashlib
import os

import pytest
from building import png

from glit.view.originals import Originals


@pytest.fixture
def picture(hostile, tmp_path):
    """Asks for a picture below ``tmp_path/in``."""
    (tmp_path / "in").mkdir()
    originals = Originals.of(str(hostile), str(tmp_path / "in"))

    def ask(path: str, sample_id: str) -> str:
        return originals.picture(path, sample_id, max_side=64, max_bytes=4096)

    return ask


def put(path, data: bytes) -> str:
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def test_the_file_that_was_left_out(picture, tmp_path):
    sample_id = put(tmp_path / "in" / "a.png", png())
    assert picture("a.png", sample_id).startswith("data:image/webp;base64,")
    assert picture("a.png", "") == picture("a.png", "0" * 64) == picture("b.png", sample_id) == ""
    put(tmp_path / "in" / "a.png", png(size=(31, 30)))
    assert picture("a.png", sample_id) == ""


def test_damage_gives_none(picture, tmp_path):
    sample_id = put(tmp_path / "in" / "cut.png", png()[:60])
    assert picture("cut.png", sample_id) == ""


def test_nothing_from_elsewhere_and_no_pipe(picture, tmp_path):
    sample_id = put(tmp_path / "secret.png", png())
    assert picture("../secret.png", sample_id) == ""
    assert picture(str(tmp_path / "secret.png"), sample_id) == ""
    os.mkfifo(tmp_path / "in" / "pipe.png")
    assert picture("pipe.png", sample_id) == picture("in\0valid", sample_id) == ""


def test_without_a_work_folder_nobody_knows_where(hostile, tmp_path):
    os.symlink(hostile / "data", tmp_path / "data")
    for name in ("manifest.json", "drops.parquet", "duplicates.parquet"):
        os.symlink(hostile / name, tmp_path / name)
    copy = hashlib.sha256((hostile.parent / "images" / "zz-copy.png").read_bytes()).hexdigest()

    def found(dataset) -> str:
        return Originals.of(str(dataset), "").picture(
            "zz-copy.png", copy, max_side=64, max_bytes=4096
        )

    assert found(hostile) and not found(tmp_path)
