"""Batches of a random dataset."""

from __future__ import annotations

from pathlib import Path

from glit.dataset.reader import Dataset
from glit.models.tokenizer import TextTokenizer
from glit.training.config import TrainConfig
from glit.training.loader import BatchLoader
from glit.training.mixture import Mixture
from glit.training.objective import Objective
from glit.training.objectives.goal import GlobalLocal

PLACE = ("rank", "num_ranks", "processes")


def loader(
    dataset: Path, tokenizer: TextTokenizer, objective: Objective | None = None, **changes
) -> BatchLoader:
    """Squares of 32 pixels, windows of 248 tokens, batches of 8; ``changes`` are settings of the
    training, or say which process loads."""
    place = {name: changes.pop(name) for name in PLACE if name in changes}
    settings = {"batch_size": 8, "shuffle_row_groups": 2, "num_workers": 0, **changes}
    return BatchLoader(
        Mixture([Dataset(dataset)]),
        objective or GlobalLocal(),
        lambda texts: tokenizer.encode_closed(texts, context=248),
        TrainConfig(**settings),
        side=32,
        pad_id=0,
        **place,
    )
