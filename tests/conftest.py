"""Shared fixtures: scenes, a built dataset, bad files; everything is made once per run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import pytest
from building import run_build

from glit.scenes import write_scenes

TEST_SEED = 2_000_000


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def scenes(tmp_path_factory) -> Path:
    """24 scenes with captions and ground truth; do not write into it."""
    folder = tmp_path_factory.mktemp("scenes")
    write_scenes(folder, num=24, seed=TEST_SEED)
    return folder


@pytest.fixture(scope="session")
def built(scenes, tmp_path_factory) -> Path:
    """A dataset of the scenes with their own captions, local executor; do not write into it."""
    output = tmp_path_factory.mktemp("built") / "dataset"
    run_build(scenes / "images", output, captions=scenes / "captions.jsonl")
    return output


@pytest.fixture
def built_copy(built, tmp_path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(built, tmp_path / "dataset"))


@pytest.fixture(scope="session")
def photographs() -> Path:
    """Fifty real photographs; do not write into the folder."""
    import fetched

    return fetched.photographs()
