"""Run folders: which model a path means, and where a run was."""

from __future__ import annotations

from pathlib import Path

import pytest

from glit.errors import InputError
from glit.train.checkpoint import model_folder, read_position
from glit.train.config import TrainConfig
from glit.train.loop import train
from glit.train.setup import find_model


def test_a_second_stage_starts_from_a_run(tiny_clip, make_dataset, tmp_path) -> None:
    values = {"batch_size": 8, "epochs": 1, "num_workers": 0, "trackers": ()}
    first, second = tmp_path / "first", tmp_path / "second"
    dataset = str(make_dataset(16))
    train(TrainConfig(model=str(tiny_clip), **values), dataset, first)
    assert find_model(str(first)) == model_folder(first) == (first / "best").resolve()
    stage = TrainConfig(model=str(first), objective="hard-negatives", **values)
    assert train(stage, dataset, second).step == 2


def test_a_folder_that_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no usable trainer/state.json"):
        read_position(tmp_path)
