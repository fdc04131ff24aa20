"""Several datasets in one training: what an epoch takes of each, in which order."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from glit.dataset.reader import Dataset
from glit.errors import InputError, RecipeError
from glit.training.config import TrainConfig
from glit.training.loop import train
from glit.training.mixture import Mixture
from glit.training.order import epoch_order


@pytest.fixture
def both(make_dataset) -> tuple[str, str]:
    first = make_dataset(20, name="first", rows_per_group=5)
    return str(first), str(make_dataset(12, name="second", seed=1, rows_per_group=4))


def identity(mixture: Mixture, order: np.ndarray) -> list[str]:
    groups = [mixture.row_group(n, columns=["sample_id"]) for n in range(len(mixture.places))]
    return [groups[group].value("sample_id", row) for group, row in order.tolist()]


def test_what_an_epoch_takes_of_each(both) -> None:
    parts = [Dataset(path) for path in both]
    own = [set(part.table(["sample_id"])["sample_id"].to_pylist()) for part in parts]
    mixture = Mixture(parts, (0.5, 2.0))
    assert len(mixture) == 10 + 24
    epochs = [identity(mixture, mixture.order(seed=3, epoch=epoch, window=2)) for epoch in range(2)]
    for found in epochs:
        counts = Counter(found)
        assert {counts[name] for name in own[1]} == {2}
        assert sum(counts[name] for name in own[0]) == 10
    halves = [set(found) & own[0] for found in epochs]
    assert not halves[0] & halves[1] and halves[0] | halves[1] == own[0]
    of_first = [name in own[0] for name in epochs[0]]
    assert of_first != sorted(of_first) and of_first != sorted(of_first, reverse=True)
    assert sum(of_first[:17]) in range(1, 10)  # no half has all of it
    again = mixture.order(seed=3, epoch=1, window=2)
    assert identity(Mixture(parts, (0.5, 2.0)), again) == epochs[1]
    assert identity(mixture, mixture.order(seed=4, epoch=1, window=2)) != epochs[1]


def test_one_dataset_has_the_order_it_always_had(both) -> None:
    (dataset,) = parts = [Dataset(both[0])]
    rows = [place.num_rows for place in dataset.places]
    for epoch, together in ((0, 1), (3, 1), (2, 5)):
        wanted = epoch_order(rows, seed=7, epoch=epoch, window=2, together=together)
        found = Mixture(parts).order(seed=7, epoch=epoch, window=2, together=together)
        assert np.array_equal(found, wanted)


def test_a_run_over_two_is_resumed_where_it_was(tiny_clip, both, tmp_path) -> None:
    """20 and 6 samples an epoch in batches of 8: four steps, and four more."""
    config = TrainConfig(
        model=str(tiny_clip), objective="clip", batch_size=8, epochs=2, lr=1e-3, num_workers=0,
        trackers=(), also=(both[1],), weights=(1.0, 0.5), checkpoint_every=3,
    )  # fmt: skip
    assert train(config, both[0], tmp_path / "whole").step == 8

    def crash(line) -> None:
        if line["step"] == 5:
            raise ConnectionError

    parted = replace(config, log_every=1)
    with pytest.raises(ConnectionError):
        train(parted, both[0], tmp_path / "parted", report=crash)
    train(parted, both[0], tmp_path / "parted", resume=True)
    wanted, found = (
        load_file(tmp_path / run / "last" / "model.safetensors") for run in ("whole", "parted")
    )
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_what_cannot_be_mixed(tiny_clip, both, tmp_path) -> None:
    for changes, message in (
        ({"weights": (1.0, 2.0)}, "train.weights: found 2, wanted 1"),
        ({"also": both[1:], "weights": (1.0, 0.0)}, "weights: found .* want above 0"),
        ({"also": both[1:], "together": 2}, "would part those that lie side by side"),
    ):
        with pytest.raises(RecipeError, match=message):
            TrainConfig(**changes)
    values = {"model": str(tiny_clip), "batch_size": 8, "trackers": ()}
    for changes, message in (
        ({"also": both[:1]}, "holds the same data files as"),
        ({"also": both[1:], "validation": both[1]}, "is the dataset that is trained on"),
    ):
        with pytest.raises(InputError, match=message):
            train(TrainConfig(**values, **changes), both[0], tmp_path / "run")
