"""Run folders: which model a path means, and where a run was."""

from __future__ import annotations

import math
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from glit.errors import InputError, WeightsError
from glit.train.checkpoint import (
    model_of_run,
    read_module,
    read_optimizer,
    read_position,
    write_module,
)
from glit.train.config import TrainConfig
from glit.train.loop import train
from glit.train.objectives.siglip import ScaleAndBias
from glit.train.setup import find_model


def test_a_second_stage_starts_from_a_run(tiny_clip, make_dataset, tmp_path) -> None:
    values = {"batch_size": 8, "epochs": 1, "num_workers": 0, "trackers": ()}
    first, second = tmp_path / "first", tmp_path / "second"
    dataset = str(make_dataset(16))
    train(TrainConfig(model=str(tiny_clip), **values), dataset, first)
    assert find_model(str(first)) == model_of_run(first)
    assert find_model(str(first)).folder == (first / "best").resolve()
    stage = TrainConfig(model=str(first), objective="hard-negatives", **values)
    assert train(stage, dataset, second).step == 2


def test_which_checkpoint_of_a_run_is_meant_is_said(tiny_clip, make_dataset, tmp_path) -> None:
    """Three epochs' worth of steps, ended in the middle of the second."""
    run = tmp_path / "run"
    config = TrainConfig(
        model=str(tiny_clip), batch_size=8, epochs=3, max_steps=3, num_workers=0, trackers=()
    )
    train(config, str(make_dataset(16)), run)
    best, last = model_of_run(run, "best"), model_of_run(run, "last")
    assert best.checkpoint == "best, step 2 (the last is step 3)"
    assert last.checkpoint == "last, step 3"
    assert (best.folder.name, last.folder.name) == ("step-00000002", "step-00000003")
    assert model_of_run(tiny_clip).checkpoint == ""


def test_a_run_without_a_whole_epoch_has_its_last_checkpoint(
    tiny_clip, make_dataset, tmp_path
) -> None:
    run = tmp_path / "run"
    config = TrainConfig(
        model=str(tiny_clip), batch_size=8, max_steps=1, num_workers=0, trackers=()
    )
    train(config, str(make_dataset(16)), run)
    assert model_of_run(run, "best").checkpoint == "last, step 1"


def test_an_objectives_own_parameters_are_saved_and_loaded(
    tiny_clip, make_dataset, tmp_path
) -> None:
    """A run that is stopped and resumed ends with the same scale and bias as one that is not."""
    dataset = str(make_dataset(16))
    values = {
        "model": str(tiny_clip), "objective": "siglip", "batch_size": 8, "epochs": 2,
        "num_workers": 0, "trackers": (),
    }  # fmt: skip
    found = []
    for name, steps in (("whole", [4]), ("parted", [1, 4])):
        for number, most in enumerate(steps):
            config = TrainConfig(**values, max_steps=4, checkpoint_every=1)
            stop = Stop(tmp_path / name, after=most)
            train(config, dataset, tmp_path / name, resume=number > 0, report=stop)
        module = load_file(tmp_path / name / "last" / "objective" / "model.safetensors")
        found.append({key: float(value) for key, value in module.items()})
    assert found[0] == found[1]
    assert found[0]["bias"] != -10 and found[0]["log_scale"] != pytest.approx(math.log(10))


class Stop:
    """Interrupts a run after so many steps, as Ctrl-C does."""

    def __init__(self, run: Path, *, after: int) -> None:
        self.after = after

    def __call__(self, line) -> None:
        if line["step"] == self.after:
            signal.raise_signal(signal.SIGINT)


def test_a_checkpoint_of_another_objective_is_refused(tmp_path) -> None:
    module = ScaleAndBias()
    with pytest.raises(WeightsError, match="not the parameters of this run's objective"):
        read_module(tmp_path, module)
    write_module(tmp_path, torch.nn.Linear(2, 2), {"objective": "other"})
    with pytest.raises(WeightsError, match="written with another objective"):
        read_module(tmp_path, module)


def test_a_folder_that_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no usable trainer/state.json"):
        read_position(tmp_path)


def test_a_damaged_optimizer_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "optimizer.pt").write_bytes(b"x\n")
    with pytest.raises(InputError, match="optimizer.pt: missing or damaged"):
        read_optimizer(tmp_path)
