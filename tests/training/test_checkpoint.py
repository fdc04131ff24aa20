"""Run folders: which model a path means, and where a run was."""

from __future__ import annotations

import math
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from glit.errors import RunError, WeightsError
from glit.models.clip.image_processor import read_preprocessing
from glit.models.clip.kinds import open_model
from glit.models.clip.position import Position, read_position
from glit.models.clip.runs import find_model, model_of_run
from glit.training.checkpoint import Checkpoints, read_module, write_module
from glit.training.config import TrainConfig
from glit.training.loop import train
from glit.training.module import LearnedScales
from glit.training.resume import checkpoint_to_start_from


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
    module = LearnedScales(scale=10.0, bias=-10.0)
    with pytest.raises(WeightsError, match="not the parameters of this run's objective"):
        read_module(tmp_path, module)
    write_module(tmp_path, torch.nn.Linear(2, 2), {"objective": "other"})
    with pytest.raises(WeightsError, match="written with another objective"):
        read_module(tmp_path, module)


class Killed(BaseException):
    """What no ``except`` of ours catches, as SIGKILL."""


WRITES = {"save", "_link", "_prune", "mend", "put_back"}
"""Functions of checkpoint.py that change files."""


def killed_at(line: int, work: Callable[[], object]) -> bool:
    """Do some work that ends before so-many-th line of :data:`WRITES`; whether it came to that."""
    seen = 0

    def trace(frame, event, argument):
        nonlocal seen
        code = frame.f_code
        if Path(code.co_filename).name != "checkpoint.py" or code.co_name not in WRITES:
            return None
        if event == "line":
            seen += 1
            if seen == line:
                raise Killed
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except Killed:
        return True
    finally:
        sys.settrace(before)
    return False


BEST = {1: 1, 2: 1, 3: 3, 4: 3}
"""By step, which checkpoint is the best so far."""


@pytest.fixture
def save_step(tiny_clip, monkeypatch):
    """``save_step(run, step)`` writes a checkpoint with an objective's own weights; CLIP's, which
    are written first, are a file of a few bytes."""
    model, preprocessing = open_model(tiny_clip), read_preprocessing(tiny_clip)

    def written(folder: Path, model, **others) -> None:
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")

    monkeypatch.setattr(sys.modules["glit.training.checkpoint"], "write_model", written)

    def save(run: Path, step: int) -> None:
        Checkpoints(run).save(
            Position(step=step, epoch=step, best=0.5, best_step=BEST[step]), model, LearnedScales(scale=10.0, bias=-10.0),
            objective={"objective": "siglip"}, start=tiny_clip, preprocessing=preprocessing,
            optimizer={"state": {}, "param_groups": []}, scaler=None, stays=step == 2,
        )  # fmt: skip

    return save


def go_on(run: Path) -> int:
    """What a resumed run does before its first step; the steps that are done."""
    last = checkpoint_to_start_from(run, resume=True)
    assert last is not None
    position = read_position(last)
    Checkpoints(run).mend(position)
    return position.step


def contents(run: Path) -> dict[str, bytes]:
    """Every file by its path, through links as well, those of unfinished writing too."""
    return {
        str(path.relative_to(run)): path.read_bytes()
        for name in ("last", "best", "checkpoints")
        for path in (run / name).rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("again", [3, 4])
def test_whatever_line_a_save_is_killed_at_links_and_bytes_are_right_after_resume(
    save_step, tmp_path, again
) -> None:
    """Step 3 is the best, step 4 is not; 4 is written a second time, as after a late measurement.

    Killed just before a link, ``last`` and ``best`` stayed at older checkpoints for good.
    """
    for step in range(1, 3 if again == 3 else 5):
        save_step(tmp_path / "before", step)
    wanted = {}
    for step in range(2, 5):
        run = shutil.copytree(tmp_path / "before", tmp_path / f"wanted-{step}", symlinks=True)
        for each in range(go_on(run) + 1, step + 1):
            save_step(run, each)
        wanted[step] = contents(run)
    line, killed = 0, True
    while killed:
        line += 1
        run = shutil.copytree(tmp_path / "before", tmp_path / f"killed-{line}", symlinks=True)
        killed = killed_at(line, partial(save_step, run, again))
        torn = shutil.copytree(run, tmp_path / f"torn-{line}", symlinks=True)
        killed_at(line % 12 + 1, partial(go_on, torn))  # and once more on its way
        for each in (run, torn):
            assert go_on(each) == read_last(each) >= again - 1
            assert contents(each) == wanted[read_last(each)], f"killed before line {line}"
            save_step(each, again)
            assert contents(each) == wanted[again]
        shutil.rmtree(run)
        shutil.rmtree(torn)
    assert line > 30


def read_last(run: Path) -> int:
    return read_position((run / "last").resolve()).step


@pytest.mark.parametrize(
    ("writer", "error"),
    [
        ("safetensors.torch.save_file", OSError(28, "No space left on device")),
        ("safetensors.torch.save_file", SafetensorError("I/O error: No space left on device")),
        ("torch.save", RuntimeError("[enforce fail at inline_container.cc:664] . "
                                    "PytorchStreamWriter failed writing file data/0")),
        ("pathlib.Path.write_text", OSError(28, "No space left on device")),
    ],
)  # fmt: skip
def test_a_full_disk_ends_a_run_in_one_line_and_keeps_what_is_there(
    save_step, tmp_path, monkeypatch, writer, error
) -> None:
    def fails(*args, **kwargs):
        raise error

    monkeypatch.setattr(writer, fails)
    with pytest.raises(RunError, match="the checkpoint cannot be written .*--resume") as caught:
        save_step(tmp_path, 1)
    assert "\n" not in str(caught.value)
    assert not [*(tmp_path / "checkpoints").iterdir()]
