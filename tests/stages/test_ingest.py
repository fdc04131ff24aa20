"""One row a file: what is kept, and why the rest is dropped."""

from __future__ import annotations

import hashlib

import pytest
from building import png

from glit.stages.ingest import IngestConfig, ingest
from glit.storage.store import Entry, Store


def one(tmp_path, data: bytes | None, *, size: int | None = None, **settings):
    """The row of a file with these bytes."""
    if data is not None:
        (tmp_path / "a.png").write_bytes(data)
    entry = Entry(path="a.png", size=len(data or b"") if size is None else size, stamp="")
    (row,) = ingest([entry], Store(tmp_path), IngestConfig(**settings))
    return row


def test_a_good_file(tmp_path):
    data = png(size=(48, 40))
    assert one(tmp_path, data) == {
        "sample_id": hashlib.sha256(data).hexdigest(),
        "source_path": "a.png",
        "num_bytes": len(data),
        "width": 48,
        "height": 40,
        "mining": "unstated",
    }
    assert "perceptual_hash" in one(tmp_path, data, near_duplicates=0)


def test_the_size_is_that_of_the_bytes_read_not_of_the_listing(tmp_path):
    data = png()
    assert one(tmp_path, data, size=3)["num_bytes"] == len(data)


@pytest.mark.parametrize(
    ("data", "settings", "reason", "message"),
    [
        (None, {}, "unreadable", "No such file or directory"),
        (png(size=(48, 15)), {}, "too_small", "48x15 pixels, both sides must be >= 16"),
        (png(size=(48, 40)), {"min_side": 41}, "too_small", "both sides must be >= 41"),
        (png(size=(48, 40)), {"max_pixels": 48 * 40 - 1}, "too_large", "pixels"),
        (b"text", {}, "not_an_image", ""),
    ],
)
def test_reasons(tmp_path, data, settings, reason, message):
    row = one(tmp_path, data, **settings)
    assert row["drop"]["reason"] == reason and message in row["drop"]["message"]
    assert "width" not in row


def test_a_name_that_is_not_utf_8_is_not_read(tmp_path):
    assert one(tmp_path, png(), size=-2)["drop"]["reason"] == "bad_name"


def test_limits_that_are_just_kept(tmp_path):
    assert "drop" not in one(tmp_path, png(size=(48, 40)), min_side=40, max_pixels=48 * 40)


def test_rows_come_in_the_order_of_the_listing(tmp_path):
    names = [f"{number}.png" for number in range(6)]
    for number, name in enumerate(names):
        (tmp_path / name).write_bytes(png(seed=number))
    entries = [Entry(path=name, size=1, stamp="") for name in names]
    rows = ingest(entries, Store(tmp_path), IngestConfig(), threads=4)
    assert [row["source_path"] for row in rows] == names
