"""Runs started by torchrun end like a run in one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from safetensors.torch import load_file

from glit.errors import UserError
from glit.models.clip.position import read_position
from glit.recipes import trust
from glit.recipes.toml_tables import trusted_tables
from glit.runtime import ranks
from glit.training import accelerated
from glit.training.checkpoint import Checkpoints
from glit.training.config import TrainConfig
from glit.training.log import METRICS
from glit.training.loop import train

SCRIPT = """
import sys
from pathlib import Path
from types import SimpleNamespace
import torch
from glit.training.config import TrainConfig
from glit.training.loop import train

torch.set_num_threads(1)
config = TrainConfig(
    model=sys.argv[1], batch_size=8, epochs=2, lr=1e-3, num_workers=1, trackers=(),
    checkpoint_every=1, log_every=1,
)
train(config, sys.argv[2], Path(sys.argv[3]), resume=sys.argv[4:] == ["--resume"])
"""
OBJECTIVE = """
from dataclasses import dataclass
from glit import extend
from glit.training.objectives.goal import FastGoal

@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled(FastGoal):
    scale: float = 2.0

    def __call__(self, features, logit_scale):
        loss, metrics = FastGoal.__call__(self, features, logit_scale)
        return self.scale * loss, {**metrics, "loss_unscaled": loss.detach()}

extend.add_objective("scaled", Scaled)
"""
"""A plugin; with a scale of 1, its objective is the default one."""
RECIPE = """
plugins = ["scaled_objective.py"]
[train]
model = "{model}"
objective = "scaled"
scale = 1.0
batch_size = 8
epochs = 2
lr = 1e-3
num_workers = 1
trackers = []
checkpoint_every = 1
log_every = 1
"""
"""The settings of ``SCRIPT`` with the objective of the plugin."""


def one_process(tiny_clip: Path, dataset: Path, run: Path) -> Path:
    config = TrainConfig(
        model=str(tiny_clip), batch_size=8, epochs=2, lr=1e-3, num_workers=1, trackers=(),
        log_every=1,
    )  # fmt: skip
    train(config, str(dataset), run)
    return run


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def logged(run: Path) -> tuple[list[int], list[float]]:
    lines = [json.loads(line) for line in (run / METRICS).read_text().splitlines()]
    return [line["step"] for line in lines], [line["loss"] for line in lines]


def assert_same(run: Path, one: Path) -> None:
    """Adam turns rounding differences of tiny gradients into steps, so the bound is a step."""
    steps, losses = logged(run)
    wanted_steps, wanted_losses = logged(one)
    assert steps == wanted_steps  # each once
    assert losses == pytest.approx(wanted_losses, rel=1e-3)
    found, wanted = (load_file(each / "last" / "model.safetensors") for each in (run, one))
    assert set(found) == set(wanted)
    for name, tensor in wanted.items():
        if not name.endswith("k_proj.bias"):  # its gradient is zero but for rounding
            torch.testing.assert_close(found[name], tensor, rtol=0, atol=2e-3, msg=name)


def environment() -> dict[str, str]:
    root = str(Path(__file__).resolve().parents[2])
    return {
        **os.environ,
        "PYTHONPATH": root + os.pathsep + os.environ.get("PYTHONPATH", ""),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }


def assert_scaled(run: Path) -> None:
    lines = [json.loads(line) for line in (run / METRICS).read_text().splitlines()]
    assert all("loss_unscaled" in line for line in lines if "loss" in line)


@pytest.mark.engine
def test_torchrun_with_an_objective_that_a_recipe_loads(tiny_clip, make_dataset, tmp_path) -> None:
    dataset = make_dataset(20)
    wanted = one_process(tiny_clip, dataset, tmp_path / "one")
    (tmp_path / "scaled_objective.py").write_text(OBJECTIVE)
    recipe, run = tmp_path / "recipe.toml", tmp_path / "two"
    recipe.write_text(RECIPE.format(model=tiny_clip))
    _, (_, contents) = trusted_tables(str(recipe), confirmed=True)
    done = subprocess.run(
        [*TORCHRUN, "-m", "glit", "train", str(dataset), "-o", str(run), "-r", str(recipe)],
        env={**environment(), trust.VARIABLE: trust.digest(contents)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert_same(run, wanted)
    assert_scaled(run)


@pytest.mark.engine
@pytest.mark.slow
def test_two_killed_processes_are_resumed_by_one(tiny_clip, make_dataset, tmp_path) -> None:
    """All are killed once two steps are saved; a batch is that of all processes together."""
    dataset = make_dataset(40)
    wanted = one_process(tiny_clip, dataset, tmp_path / "one")
    script, run = tmp_path / "script.py", tmp_path / "killed"
    script.write_text(SCRIPT)
    words = [str(script), str(tiny_clip), str(dataset), str(run)]
    with subprocess.Popen(
        [*TORCHRUN, *words], env=environment(), start_new_session=True, stderr=subprocess.DEVNULL
    ) as killed:
        while not list(run.glob("checkpoints/step-*2")) and killed.poll() is None:
            time.sleep(0.01)
        for process in psutil.Process(killed.pid).children(recursive=True):
            process.kill()  # they have sessions of their own
        killed.kill()
    last = read_position(Checkpoints(run).last()).step
    assert last < 10, "killed too late"
    done = subprocess.run(
        [sys.executable, *words, "--resume"], env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert_same(run, wanted)


def fits(num_launched: int, num_accelerate: int, index: int = 0) -> None:
    accelerator = SimpleNamespace(num_processes=num_accelerate, process_index=index)
    accelerated._check_same_processes(accelerator, num_launched)


def test_launcher_accelerate_and_torch_must_count_alike(monkeypatch) -> None:
    fits(1, 1)
    with pytest.raises(UserError, match="launcher 2, accelerate 1, torch.distributed 1"):
        fits(2, 1)
    monkeypatch.setattr(accelerated, "num_ranks", lambda: 2)
    fits(2, 2)
    with pytest.raises(UserError, match="launcher 2, accelerate 1, torch.distributed 2"):
        fits(2, 1)
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(UserError, match="rank 1 and 0"):
        fits(2, 2)
    fits(2, 2, index=1)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_SIZE=2: MPI started several"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE=two: want a number"),
    ],
)
def test_launchers_that_cannot_be_followed(monkeypatch, variables, message) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=message):
        ranks.num_launched()


def test_more_processes_than_gpus(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    accelerated._check_devices("cuda")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    with pytest.raises(UserError, match="3 processes on this machine, which has 2 of the device"):
        accelerated._check_devices("cuda")
    accelerated._check_devices("cpu")
