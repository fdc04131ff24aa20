"""A tiny random CLIP and small random datasets for the trainer's tests."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from factories.random_dataset import WORDS, DatasetShape, write_random_dataset
from jaxtyping import install_import_hook

from glit.backends.tokenizer import TextTokenizer, tokenizer_hash
from glit.bench.random_clip import TINY, write_random_clip

MakeDataset = Callable[..., Path]

SHAPED = ("losses", "pooling", "features", "packing", "batch", "preprocess", "encoder")
with install_import_hook([f"glit.train.{name}" for name in SHAPED], "beartype.beartype"):
    for name in SHAPED:  # the shapes in their signatures are checked in these tests
        importlib.import_module(f"glit.train.{name}")


@pytest.fixture(scope="session")
def tiny_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a CLIPModel with 32-pixel images, 8-pixel patches and 77 text positions."""
    folder = tmp_path_factory.mktemp("tiny-clip")
    return write_random_clip(folder, TINY, seed=0, corpus=[" ".join(WORDS)] * 3, vocabulary=700)


@pytest.fixture(scope="session")
def tokenizer(tiny_clip: Path) -> TextTokenizer:
    return TextTokenizer(tiny_clip)


@pytest.fixture(scope="session")
def tokenizer_identity(tiny_clip: Path) -> dict[str, Any]:
    return {"name": "tiny-clip", "sha256": tokenizer_hash(tiny_clip), "context": 248}


@pytest.fixture()
def make_dataset(
    tmp_path: Path, tokenizer: TextTokenizer, tokenizer_identity: dict[str, Any]
) -> MakeDataset:
    """``make_dataset(num_samples, change=None, **shape)`` writes a dataset, returns its folder."""

    def make(
        num_samples: int, *, name: str = "dataset", seed: int = 0, change=None, **shape
    ) -> Path:
        return write_random_dataset(
            tmp_path / name,
            DatasetShape(num_samples=num_samples, **shape),
            seed=seed,
            encode=tokenizer.encode,
            tokenizer=tokenizer_identity,
            change=change,
        )

    return make
