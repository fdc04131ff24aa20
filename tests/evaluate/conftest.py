"""A tiny random CLIP and a small random dataset to measure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from factories.random_dataset import WORDS, DatasetShape, write_random_dataset

from glit.backends.tokenizer import TextTokenizer, tokenizer_hash
from glit.bench.random_clip import TINY, write_random_clip


@pytest.fixture(scope="session")
def tiny_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny-clip")
    return write_random_clip(folder, TINY, seed=0, corpus=[" ".join(WORDS)] * 3, vocabulary=700)


@pytest.fixture()
def make_dataset(tmp_path: Path, tiny_clip: Path) -> Callable[..., Path]:
    def make(num_samples: int, *, change=None, **shape) -> Path:
        identity = {"name": "tiny", "sha256": tokenizer_hash(tiny_clip), "context": 248}
        return write_random_dataset(
            tmp_path / "dataset",
            DatasetShape(num_samples=num_samples, **shape),
            seed=1,
            encode=TextTokenizer(tiny_clip).encode,
            tokenizer=identity,
            change=change,
        )

    return make
