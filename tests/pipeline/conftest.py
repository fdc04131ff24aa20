"""Datasets that are added to."""

from __future__ import annotations

from pathlib import Path

import pytest
from adding import OLD, OVERRIDES, moved, put, put_more, run_add
from building import run_build


@pytest.fixture(scope="session")
def old(scenes, tmp_path_factory) -> Path:
    """A folder with images and their dataset; not to be written into."""
    folder = tmp_path_factory.mktemp("old")
    put(scenes, folder / "in", *OLD)
    run_build(folder / "in", folder / "out", overrides=OVERRIDES)
    return folder


@pytest.fixture
def world(old, tmp_path) -> Path:
    """A copy of the same to work on."""
    return moved(old, tmp_path / "world")


@pytest.fixture
def grown(scenes, world) -> Path:
    """The same with more images in the folder."""
    put_more(scenes, world / "in")
    return world


@pytest.fixture(scope="session")
def added(scenes, old, tmp_path_factory) -> Path:
    """The same with these added, undisturbed; not to be written into."""
    folder = moved(old, tmp_path_factory.mktemp("added") / "world")
    put_more(scenes, folder / "in")
    run_add(folder)
    return folder
