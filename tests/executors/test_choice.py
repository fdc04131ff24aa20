"""The executor of a build that names none."""

from __future__ import annotations

import importlib.util
import tarfile

import pytest

from glit import api
from glit.inputs.source import Source, find_source
from glit.pipeline.executors import choice
from glit.pipeline.executors.choice import choose_executor, few_images
from glit.pipeline.planning.recipe import load_recipe


@pytest.fixture(autouse=True)
def one_machine(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(choice, "accelerators", list)


@pytest.fixture
def folder(tmp_path):
    def made(number: int) -> Source:
        for each in range(number):
            (tmp_path / f"{each}.jpg").touch()
        return find_source(str(tmp_path))

    return made


FEW = 5


def chosen(source, **how):
    usual = {"few": FEW, "address": None, "limit": None, "is_unfinished": False}
    return choose_executor(source, **{**usual, **how})


@pytest.mark.parametrize(
    ("recipe", "few"), [("provided", 3_000), ("mini", 300), ("laptop", 30), ("flism", 30)]
)
def test_the_more_a_recipe_takes_an_image_the_fewer_are_few(recipe, few):
    assert few_images(load_recipe(recipe)) == few


def test_few_images_without_a_gpu_stay_in_this_process(folder, monkeypatch):
    assert chosen(folder(FEW)) == "local"
    monkeypatch.setattr(choice, "accelerators", lambda: ["mps"])
    assert chosen(folder(FEW)) == "local"
    monkeypatch.setattr(choice, "accelerators", lambda: ["cuda"])
    assert chosen(folder(FEW)) == "ray"


def test_one_more_and_ray_pays_unless_there_is_a_limit(folder):
    source = folder(FEW + 1)
    assert chosen(source) == "ray"
    assert chosen(source, limit=FEW) == "local"
    assert chosen(source, limit=FEW + 1) == "ray"


def test_a_cluster_is_used(folder, monkeypatch):
    source = folder(1)
    assert chosen(source, address="head:6379") == "ray"
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    assert chosen(source) == "ray"


def test_what_was_stopped_goes_on_with_ray_if_that_is_installed(folder, monkeypatch):
    source = folder(1)
    assert chosen(source, is_unfinished=True) == "ray"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert chosen(source, is_unfinished=True) == "local"


def test_shards_are_many_images(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w"):
        pass
    assert chosen(find_source(str(tmp_path))) == "ray"
    assert chosen(find_source(str(tmp_path / "a.tar"))) == "ray"
    (tmp_path / "a.jpg").touch()  # beside images, shards are not read
    assert chosen(find_source(str(tmp_path))) == "local"


def test_images_that_cannot_be_listed_are_left_to_the_build(tmp_path):
    (tmp_path / "list.txt").write_text("../outside.jpg\n")
    assert chosen(find_source(str(tmp_path / "list.txt"))) == "local"
    recipe = load_recipe("mini")
    assert api._chosen_executor(tmp_path / "out", None, images="nowhere", recipe=recipe) == "local"


def test_a_dataset_knows_its_images_and_whether_it_is_finished(built, tmp_path, monkeypatch):
    assert api._chosen_executor(built, None) == "local"
    monkeypatch.setattr(choice, "few_images", lambda recipe: 1)
    assert api._chosen_executor(built, None) == "ray"
