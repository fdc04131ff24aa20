"""The library's functions where they differ from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

import glit

ADDRESSES = ["s3://bucket/x", Path("s3://bucket/x"), "gs:/bucket"]
"""The second is what a caller has who made a Path of the first."""
CALLS = {
    "build": lambda images, dataset, to: glit.build(
        images, to, recipe="mini", executor="local", quiet=True
    ),
    "train": lambda images, dataset, to: glit.train(dataset, to, recipe="mini"),
    "train, resumed": lambda images, dataset, to: glit.train(dataset, to, resume=True),
    "export": lambda images, dataset, to: glit.export(dataset, to="coco", output=to),
}


@pytest.mark.parametrize("address", ADDRESSES, ids=repr)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_address_to_write_to_is_refused_and_becomes_no_folder(
    call, address, scenes, built, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(glit.GlitError, match=f"^{address}: an address, but glit writes to local"):
        call(scenes / "images", built, address)
    assert [*tmp_path.iterdir()] == []


def test_an_address_to_read_that_nothing_opens(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        glit.GlitError, match=r"^foo://x: cannot be opened .Protocol not known: foo"
    ):
        glit.open_dataset("foo://x")
    with pytest.raises(glit.GlitError, match=r"^foo://x: cannot be opened"):
        glit.evaluate("retrieval", "mini-matcher", "foo://x")
    assert [*tmp_path.iterdir()] == []
