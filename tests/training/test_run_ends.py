"""Runs that are refused before they begin, or end for want of a disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from glit.errors import RecipeError, RunError, UserError
from glit.training import loop
from glit.training.config import TrainConfig
from glit.training.loop import train


def config(tiny_clip: Path, **changes) -> TrainConfig:
    values = {"batch_size": 8, "epochs": 1, "num_workers": 0, "trackers": (), "log_every": 1}
    return TrainConfig(model=str(tiny_clip), **{**values, **changes})


@pytest.mark.parametrize(
    ("trackers", "said"),
    [
        (("tensorboard", "wandb"), "train.trackers: 'wandb' is not installed; install"),
        (("tensorbord",), "train.trackers: unknown tracker 'tensorbord'; did you mean 'tensorb"),
    ],
)
def test_a_tracker_that_cannot_be_used_is_refused_before_anything_is_trained(
    tiny_clip, make_dataset, tmp_path, trackers, said
) -> None:
    """accelerate leaves out what is not installed, and says nothing."""
    with pytest.raises(RecipeError, match=said):
        train(config(tiny_clip, trackers=trackers), str(make_dataset(8)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_disk_that_is_full_when_a_line_is_logged(
    tiny_clip, make_dataset, tmp_path, monkeypatch
) -> None:
    def full(self, values) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(loop.JsonLines, "write", full)
    with pytest.raises(RunError, match="the disk takes no more .No space left.*--resume"):
        train(config(tiny_clip), str(make_dataset(8)), tmp_path / "run")


def test_a_run_folder_that_cannot_be_made(tiny_clip, make_dataset, tmp_path, monkeypatch) -> None:
    """No inodes are left, or nobody may write there."""
    plain = os.open

    def no_inodes(path, *args, **kwargs):
        if str(path).endswith("/.lock"):
            raise OSError(28, "No space left on device")
        return plain(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", no_inodes)
    with pytest.raises(UserError, match="run: cannot write there .No space left on device"):
        train(config(tiny_clip), str(make_dataset(8)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_second_training_in_a_folder_is_refused(tiny_clip, make_dataset, tmp_path) -> None:
    """Both ended well, with logs and settings mixed."""
    dataset, run = str(make_dataset(8)), tmp_path / "run"

    def another(line) -> None:
        with pytest.raises(UserError, match="run: another glit is writing here .pid"):
            train(config(tiny_clip, lr=1e-6), dataset, run)

    train(config(tiny_clip, epochs=1), dataset, run, report=another)
    assert not (run / ".lock").exists()
