"""A resumed run goes on with its own settings; what contradicts them is refused by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from glit.errors import InputError, RecipeError
from glit.pipeline.planning.recipe import known_tables
from glit.training.config import TrainConfig
from glit.training.loop import train
from glit.training.objectives.goal import FastGoal
from glit.training.run_file import (
    anywhere,
    config_of,
    differences,
    settings,
    trained_parameters,
)


def config(tiny_clip, **changes) -> TrainConfig:
    values = {
        "model": str(tiny_clip), "batch_size": 8, "epochs": 2, "max_steps": 1, "lr": 1e-4,
        "num_workers": 0, "trackers": (), "objective": "fast-goal",
        "options": FastGoal(lambda_local=0.2),
    }  # fmt: skip
    return TrainConfig(**{**values, **changes})


@pytest.fixture(scope="module")
def stopped(tiny_clip, write_dataset, tmp_path_factory) -> Path:
    """A dataset and a run over it that stopped after its first step; not to be written into."""
    folder = tmp_path_factory.mktemp("stopped")
    train(config(tiny_clip), str(write_dataset(folder / "dataset", 16)), folder / "run")
    return folder


@pytest.fixture
def run(stopped, tmp_path) -> Path:
    """A copy of the run, with the dataset beside it."""
    shutil.copytree(stopped, tmp_path, symlinks=True, dirs_exist_ok=True)
    return tmp_path / "run"


def resumed(run: Path, *changes: str, recipe: str | None = None, objective: str | None = None):
    return config_of(
        run, recipe=recipe, objective=objective, settings=changes, resume=True,
        known_tables=known_tables,
    )  # fmt: skip


def test_the_file_holds_every_key(run, tiny_clip) -> None:
    kept = json.loads((run / "run.json").read_text())["train"]
    assert kept == settings(config(tiny_clip, precision="no"))  # what auto was on this device
    assert (kept["lambda_local"], kept["lambda_tsl"], kept["lr"]) == (0.2, 1.0, 1e-4)


def test_a_bare_resume_takes_the_runs_own_settings(run, tiny_clip) -> None:
    assert settings(resumed(run)) == settings(config(tiny_clip, precision="no"))


def test_a_key_newer_than_the_run_stands_at_its_default(run) -> None:
    file = run / "run.json"
    values = json.loads(file.read_text())
    del values["train"]["max_logit_scale"]
    file.write_text(json.dumps(values))
    assert resumed(run, "train.max_logit_scale=100").max_logit_scale == 100
    with pytest.raises(RecipeError, match=r"train.max_logit_scale = 50 \(run: 100.0\)"):
        resumed(run, "train.max_logit_scale=50")


def test_what_may_change_changes(run) -> None:
    found = resumed(run, "train.epochs=5", "train.log_every=3", "train.max_steps=0")
    assert (found.epochs, found.log_every, found.max_steps, found.lr) == (5, 3, 0, 1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"changes": ["train.lr=3e-4"]}, r"train.lr = 0.0003 \(run: 0.0001\)"),
        ({"changes": ["train.batch_size=16"]}, r"train.batch_size = 16 \(run: 8\)"),
        ({"changes": ["train.lambda_local=0.5"]}, r"train.lambda_local = 0.5 \(run: 0.2\)"),
        ({"changes": ["train.precision=bf16"]}, r"train.precision = 'bf16' \(run: 'no'\)"),
        ({"objective": "clip"}, r"train.objective = 'clip' \(run: 'fast-goal'\)"),
        ({"objective": "auto"}, r"train.objective = 'auto' \(run: 'fast-goal'\)"),
        ({"recipe": "clip"}, r"train.objective = 'clip' \(run: 'fast-goal'\)"),
    ],
)
def test_a_contradiction_is_refused_by_name(run, changes, message) -> None:
    words = changes.pop("changes", [])
    with pytest.raises(RecipeError, match=message):
        resumed(run, *words, **changes)


def test_the_same_said_again_is_no_contradiction(run) -> None:
    assert resumed(run, "train.lr=1e-4", objective="fast-goal").lr == 1e-4
    assert resumed(run, "train.precision=auto").precision == "no"


def test_the_library_refuses_as_the_command_does(run, tiny_clip, make_dataset) -> None:
    dataset = run.parent / "dataset"
    with pytest.raises(RecipeError, match="train.lr"):
        train(config(tiny_clip, lr=1.0), str(dataset), run, resume=True)


def test_another_dataset_isdifferences(run, tiny_clip, make_dataset) -> None:
    other = make_dataset(16, name="other", seed=5)
    with pytest.raises(InputError, match="holds other data files"):
        train(config(tiny_clip), str(other), run, resume=True)


def test_a_run_that_does_not_say_how_it_was_started(run) -> None:
    (run / "run.json").unlink()
    with pytest.raises(InputError, match="does not say how the run was started"):
        resumed(run)


def test_an_unknown_key_is_named(run) -> None:
    with pytest.raises(RecipeError, match="did you mean 'epochs'"):
        resumed(run, "train.epoch=3")


def test_a_run_of_an_earlier_glit_did_not_count_its_parameters(run) -> None:
    counted = trained_parameters(run)
    assert counted.endswith(" parameters") and " of " in counted
    kept = json.loads((run / "run.json").read_text())
    del kept["parameters"]
    (run / "run.json").write_text(json.dumps(kept))
    assert trained_parameters(run) == "parameters not counted"


def test_a_path_of_another_spelling_is_the_same_setting(tmp_path, monkeypatch):
    """Ray's workers get absolute paths; the run that goes on without Ray has relative ones."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept").mkdir()
    assert anywhere("kept") == str(tmp_path / "kept") and anywhere(("kept",)) == (anywhere("kept"),)
    assert [anywhere(name) for name in ("", "org/model", "s3://bucket/x")] == [
        "", "org/model", "s3://bucket/x",
    ]  # fmt: skip
    (tmp_path / "mini-clip").mkdir()
    assert anywhere("mini-matcher") == "mini-matcher"
    before = {"validation": "kept", "also": ["kept"], "lr": 1.0}
    assert differences(before, {"validation": anywhere("kept"), "also": [anywhere("kept")]}) == ""
    assert "train.validation" in differences(before, {"validation": str(tmp_path)})
