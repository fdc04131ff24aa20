"""The library's functions where they differ from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import glit
from glit.errors import WeightsError

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


@pytest.mark.parametrize(
    ("name", "address"),
    # a build writes to the first kind of address
    [(n, a) for n in CALLS for a in ADDRESSES if (n, a) != ("build", "s3://bucket/x")],
)
def test_an_address_to_write_to_is_refused_and_becomes_no_folder(
    name, address, scenes, built, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        glit.GlitError, match=f"^{address}: an address, but this command writes to loc"
    ):
        CALLS[name](scenes / "images", built, address)
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


def test_settings_beside_a_loaded_recipe_are_refused(scenes, tmp_path):
    recipe = glit.load_recipe("mini")
    with pytest.raises(glit.GlitError, match="settings pair.rule=lism: they change a named recipe"):
        glit.build(
            scenes / "images", tmp_path / "out", recipe=recipe, settings=["pair.rule=lism"],
            executor="local",
        )  # fmt: skip


def test_names_that_are_none_are_refused(scenes, built, tmp_path):
    """They would be taken for the other of two."""
    executor: Any = "locl"
    with pytest.raises(glit.GlitError, match="executor 'locl': .*did you mean 'local'"):
        glit.build(scenes / "images", tmp_path / "out", recipe="mini", executor=executor)
    checkpoint: Any = "newest"
    with pytest.raises(glit.GlitError, match="checkpoint 'newest': wanted best or last"):
        glit.evaluate("retrieval", "mini-matcher", built, checkpoint=checkpoint)


def test_a_missing_model_is_named_before_ray_starts(scenes, tmp_path, monkeypatch):
    def never(*_, **__):
        raise AssertionError("an executor was opened")

    monkeypatch.setattr("glit.pipeline.executors.open_executor", never)
    with pytest.raises(WeightsError, match="its models are not on this machine"):
        glit.build(scenes / "images", tmp_path / "out", recipe="laptop", executor="ray")
    assert not (tmp_path / "out").exists()
