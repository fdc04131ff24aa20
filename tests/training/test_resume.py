"""A checkpoint that does not fit its run is refused in one line, before anything is trained."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from glit.training.config import TrainConfig
from glit.training.loop import train

STATE = "trainer/state.json"


@pytest.fixture(scope="module")
def stopped(tiny_clip, tmp_path_factory, write_dataset):
    """A dataset and a run that was stopped after the first step of two in its first epoch."""
    folder = tmp_path_factory.mktemp("stopped")
    dataset = write_dataset(folder / "dataset", 16)
    config = TrainConfig(
        model=str(tiny_clip), objective="clip", batch_size=8, max_steps=1, num_workers=0,
        trackers=(),
    )  # fmt: skip
    train(config, str(dataset), folder / "run")
    return dataset, folder / "run"


@pytest.fixture
def resume(stopped, tmp_path, run_glit):
    """``resume(change)``: change the newest checkpoint of a copy, then go on with it."""
    dataset, whole = stopped

    def go_on(change) -> tuple[int, str]:
        run = Path(shutil.copytree(whole, tmp_path / "run", symlinks=True))
        change((run / "last").resolve())
        done = run_glit(
            "train", dataset, "-o", run, "--resume", "--quiet", "--set", "train.max_steps=2"
        )
        return done.code, done.errors

    return go_on


def state(**changes):
    def change(checkpoint: Path) -> None:
        values = json.loads((checkpoint / STATE).read_text())
        (checkpoint / STATE).write_text(json.dumps({**values, **changes}))

    return change


def optimizer(alter):
    def change(checkpoint: Path) -> None:
        path = checkpoint / "trainer" / "optimizer.pt"
        found = torch.load(path, weights_only=True)
        torch.save(alter(found), path)

    return change


def emptied(found):
    found["optimizer"]["state"] = {}
    return found


def of_another_model(found):
    for values in found["optimizer"]["state"].values():
        values["exp_avg"] = torch.zeros(3)
    return found


def older(found):
    for values in found["optimizer"]["state"].values():
        values["step"] = torch.tensor(9.0)
    return found


def cut(name: str, size: int):
    def change(checkpoint: Path) -> None:
        path = checkpoint / name
        path.write_bytes(path.read_bytes()[:size])

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (state(step=-5), "'step': found -5, want >= 0"),
        (state(step="6"), "'step': found '6' (str), want int"),
        (state(step=None), "'step': found None (NoneType), want int"),
        (state(step=3.5), "'step': found 3.5 (float), want int"),
        (state(step=True), "'step': found True (bool), want int"),
        (state(step=7), "says step 7, epoch 0, batch 1, which a run of 2 batches an epoch"),
        (state(batch=999), "batch 999, which a run of 2 batches an epoch does not come to"),
        (state(epoch=99), "epoch 99, batch 1, which a run of 2 batches an epoch"),
        (state(best="good"), "'best': found 'good' (str), want float"),
        (state(loss_sum=float("nan")), "'loss_sum': found nan, want a finite number"),
        (state(best_step=50), "state.json says step 1"),
        (state(stop=1), "unknown key 'stop'"),
        (lambda c: (c / STATE).write_text("[]"), "found [] (list), want a table"),
        (lambda c: (c / STATE).write_text('{"epoch": 1}'), "'step': is missing"),
        (lambda c: (c / STATE).write_bytes(b"\xff"), "no usable trainer/state.json"),
        (lambda c: (c / STATE).unlink(), "no usable trainer/state.json"),
        (optimizer(emptied), "optimizer.pt: missing, damaged or of another run (it has done 0"),
        (optimizer(of_another_model), "optimizer.pt: missing, damaged or of another run (exp_avg"),
        (optimizer(older), "(it has done 9 steps, want 1)"),
        (optimizer(lambda found: {}), "optimizer.pt: missing, damaged or of another run"),
        (optimizer(lambda found: torch.ones(3)), "optimizer.pt: missing, damaged"),
        (optimizer(lambda found: {**found, "optimizer": []}), "optimizer.pt: missing, damaged"),
        (
            optimizer(lambda f: {**f, "optimizer": {"state": {}, "param_groups": []}}),
            "optimizer.pt: missing, damaged or of another run",
        ),
        (cut("trainer/optimizer.pt", 0), "optimizer.pt: missing, damaged"),
        (cut("trainer/optimizer.pt", 99), "optimizer.pt: missing, damaged"),
        (cut("model.safetensors", 0), "no CLIPModel can be loaded from it"),
        (cut("model.safetensors", 4000), "no CLIPModel can be loaded from it"),
        (lambda c: (c.parents[1] / "metrics.jsonl").write_bytes(b"\xff\n"), "log cannot be read"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_one_line(resume, change, said: str) -> None:
    code, errors = resume(change)
    assert code == 2, errors
    lines = [line for line in errors.splitlines() if line.startswith("glit: ")]
    assert len(lines) == 1 and said in lines[0]
    assert "Traceback" not in errors


def test_a_checkpoint_of_an_earlier_glit_goes_on(resume) -> None:
    """It does not say which step was the best."""

    def without(checkpoint: Path) -> None:
        values = json.loads((checkpoint / STATE).read_text())
        del values["best_step"]
        (checkpoint / STATE).write_text(json.dumps(values))

    assert resume(without)[0] == 0
