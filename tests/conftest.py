"""Shared fixtures: scenes, a built dataset, bad files; everything is made once per run."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from glit.build import BuildRequest, build
from glit.executors.local import LocalExecutor
from glit.progress import StageProgress
from glit.recipe import load_recipe
from glit.scenes import write_scenes

TEST_SEED = 2_000_000


def run_build(images, output, *, overrides=(), captions=None, recipe="mini", executor=None, **rest):
    """One build as the command line does it, silently."""
    if captions is not None:
        overrides = ["caption.backend=provided", *overrides]
    request = BuildRequest(
        images=str(images),
        output=str(output),
        recipe=load_recipe(recipe, overrides=overrides),
        captions=None if captions is None else str(captions),
        **rest,
    )
    progress = StageProgress(Console(quiet=True), quiet=True)
    return build(request, executor or LocalExecutor(), progress)


def data_bytes(dataset: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((dataset / "data").iterdir())}


def png(pixels: np.ndarray | None = None, *, size=(48, 40), seed=0) -> bytes:
    if pixels is None:
        pixels = np.random.default_rng(seed).integers(0, 255, (size[1], size[0], 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


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
    from photographs import fetch

    return fetch()
