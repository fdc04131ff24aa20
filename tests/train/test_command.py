"""``glit train`` and ``glit eval`` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from glit.cli.main import app
from glit.errors import InputError, RecipeError
from glit.recipe import load_table
from glit.resources import builtin_recipes
from glit.train.objectives import OBJECTIVES


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def settings(tiny_clip: Path) -> list[str]:
    values = {
        "model": f'"{tiny_clip}"',
        "batch_size": 8,
        "epochs": 1,
        "num_workers": 1,
        "log_every": 1,
        "trackers": "[]",
    }
    return [part for key, value in values.items() for part in ("--set", f"train.{key}={value}")]


def test_train_then_compare(tiny_clip, make_dataset, tmp_path) -> None:
    dataset, out = str(make_dataset(16)), tmp_path / "run"
    printed = run(
        "train", dataset, "-o", str(out), "-r", "fast-goal", "--json", *settings(tiny_clip)
    )
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert [line["step"] for line in lines] == [1, 2]
    table = run("eval", "retrieval", str(out), dataset, "-o", str(tmp_path / "figures"))
    assert "T2I R@1" in table
    printed = run("eval", "retrieval", str(out), dataset, "--compare", str(tiny_clip), "--json")
    results = json.loads(printed)
    assert [result["model"] for result in results] == [str(out), str(tiny_clip)]
    assert len(list((tmp_path / "figures").iterdir())) == 2


@pytest.mark.parametrize("task", ["joint-map", "localize", "robustness", "caption-quality"])
def test_every_measurement(tiny_clip, make_dataset, task: str) -> None:
    printed = run("eval", task, str(tiny_clip), str(make_dataset(8)), "--json")
    assert json.loads(printed)[0]["task"] == task


def test_the_objective_option_and_resume(tiny_clip, make_dataset, tmp_path) -> None:
    dataset, out = str(make_dataset(16)), str(tmp_path / "run")
    base = ["train", dataset, "-o", out, "-r", "fast-goal", "--objective", "clip"]
    run(*base, *settings(tiny_clip), "--set", "train.max_steps=1")
    assert json.loads((tmp_path / "run/run.json").read_text())["train"]["objective"] == "clip"
    run("train", dataset, "-o", out, "--resume")  # with the run's own settings
    assert json.loads((tmp_path / "run/run.json").read_text())["train"]["objective"] == "clip"
    with pytest.raises(InputError, match="holds a run already"):
        run(*base, *settings(tiny_clip))


def test_a_mistyped_objective_names_the_nearest(make_dataset, tmp_path) -> None:
    with pytest.raises(RecipeError, match="did you mean 'fast-goal'"):
        run("train", "nowhere", "-o", str(tmp_path), "-r", "fast-goal", "--objective", "fastgoal")


def test_there_is_a_recipe_for_every_objective() -> None:
    found = set()
    for name in builtin_recipes():
        found.add(load_table("train", name).objective)
    assert found == set(OBJECTIVES)
