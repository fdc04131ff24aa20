"""A stranger's recipe may not trust on the user's behalf."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import typing
from typing import Literal

import pytest
from typer.testing import CliRunner

from glit.cli.main import app
from glit.errors import RecipeError
from glit.evaluation.config import EvaluateConfig
from glit.pipeline.planning.recipe import load_recipe, load_table, read_tables
from glit.recipes import trust
from glit.recipes.resources import builtin_recipes
from glit.stages import all_steps
from glit.training.config import TrainConfig


@pytest.fixture(autouse=True)
def _own_config(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("GLIT_TRUST", raising=False)


@pytest.fixture
def recipe(tmp_path):
    """Writes a recipe into a folder of its own."""

    def write(text, name="r"):
        folder = tmp_path / "downloads"
        folder.mkdir(exist_ok=True)
        path = folder / f"{name}.toml"
        path.write_text(text)
        return path

    return write


FAR = '[caption]\nbackend = "endpoint"\nendpoint = "http://far.example/v1"\n'


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[propose]\nallow_pickle = true\n", "propose.allow_pickle"),
        ("[ground]\nallow_pickle = 1\n", "ground.allow_pickle"),
        (FAR, "caption.endpoint"),
        (FAR.replace("caption", "condense"), "condense.endpoint"),
        (FAR.replace("far.example", "127.0.0.1.far.example"), "caption.endpoint"),
        (FAR.replace("far.example", "127.0.0.1@far.example"), "caption.endpoint"),
        ('[caption]\napi_key_env = "AWS_SECRET_ACCESS_KEY"\n', "caption.api_key_env"),
        ('[caption]\nprompt = "/etc/hostname"\n', "caption.prompt"),
        ('[pair]\ncalibration = "/etc/hostname"\n', "pair.calibration"),
        ('[exclude]\nlists = ["a.txt", "http://far.example/x"]\n', "exclude.lists"),
        ('[rights]\nreservations = ["../../../../../../../etc/hostname"]\n', "rights.reservations"),
        ('[evaluate]\nclass_names = "/etc/hostname"\n', "evaluate.class_names"),
    ],
)
def test_what_trusts_is_refused_in_a_file_and_named(recipe, text, key):
    path = recipe(text)
    with pytest.raises(RecipeError, match=f"{key}.*glit trust {path}") as said:
        load_recipe(str(path))
    assert "\n" not in str(said.value)
    with pytest.raises(RecipeError, match=key):
        load_table(TrainConfig, str(path))
    with pytest.raises(RecipeError, match=key):
        load_recipe(str(recipe(f'base = "{path}"\n', "based")))


HARMLESS = {
    "names of parts of glit": {"agents", "backend", "drop", "kinds", "language", "objective",
                               "reject", "rule", "scorer", "trackers"},
    "weights as safetensors; for pickles allow_pickle asks": {"model", "revision", "tokenizer"},
    "texts for models": {"caption", "instruction", "request", "templates"},
    "datasets and pictures, whose readers take strangers'": {"also", "image_root", "validation",
                                                             "validation_classes"},
}  # fmt: skip
"""Keys with texts that a recipe may have without asking for trust, and why."""


def texts_of(kind: type) -> set[str]:
    """Keys of a table, and of what it chooses, that hold texts without a list of allowed ones."""
    hints = typing.get_type_hints(kind)
    found = {
        field.name for field in dataclasses.fields(kind)
        if field.name != "options" and typing.get_origin(hints[field.name]) is not Literal
        and re.search(r"str|Fields|Any", str(hints[field.name]))
    }  # fmt: skip
    options = kind.choice.options().values() if hasattr(kind, "choice") else ()
    return found.union(*(texts_of(each) for each in options if each is not None))


def test_every_key_that_may_name_a_file_or_a_server_asks_or_has_a_reason():
    tables = [step.config for step in all_steps()] + [TrainConfig, EvaluateConfig]
    keys = set().union(*map(texts_of, tables))
    asking = trust.FILES | {"api_key_env", "endpoint"}
    assert keys - asking == set().union(*HARMLESS.values())


def test_no_recipe_of_glit_allows_pickles_to_those_that_are_based_on_it():
    for name in builtin_recipes():
        tables = read_tables(name)
        assert not [t for t in tables.values() if isinstance(t, dict) and "allow_pickle" in t], name


def test_a_link_to_another_file_is_another_file(recipe, tmp_path):
    (tmp_path / "private.txt").write_text("private")
    path = recipe(f'[caption]\nprompt = "{tmp_path}/downloads/p.txt"\n')
    (path.parent / "p.txt").write_text("Describe it.")
    assert load_recipe(str(path)).caption.prompt.endswith("p.txt")
    (path.parent / "p.txt").unlink()
    (path.parent / "p.txt").symlink_to(tmp_path / "private.txt")
    with pytest.raises(RecipeError, match="caption.prompt"):
        load_recipe(str(path))


@pytest.mark.parametrize(
    "text",
    [
        '[caption]\nbackend = "endpoint"\nendpoint = "http://[::1]:8000/v1"\n',
        '[caption]\nbackend = "endpoint"\napi_key_env = "OPENAI_API_KEY"\n',
        'base = "lism"\n[score]\nbatch_size = 4\n',
        "[propose]\nallow_pickle = false\n",
    ],
)
def test_what_trusts_nobody_needs_no_confirmation(recipe, text):
    load_recipe(str(recipe(text)))


def test_the_command_line_may_trust(recipe):
    settings = ["caption.endpoint=http://near.example/v1"]
    found = load_recipe(str(recipe(FAR)), overrides=settings)
    assert found.caption.endpoint == "http://near.example/v1"
    load_recipe("captions-only", overrides=["caption.backend=endpoint", *settings])


def test_a_file_is_confirmed_once_until_it_changes(recipe):
    path = recipe(FAR)
    said = CliRunner().invoke(app, ["trust", str(path)])
    assert said.exit_code == 0 and "http://far.example/v1" in said.output
    assert load_recipe(str(path)).caption.endpoint == "http://far.example/v1"
    path.write_text(FAR + "# changed\n")
    with pytest.raises(RecipeError, match="glit trust"):
        load_recipe(str(path))


def test_the_base_of_a_confirmed_file_may_not_change(recipe):
    base = recipe(FAR, "base")
    path = recipe('base = "base.toml"\n')
    assert CliRunner().invoke(app, ["trust", str(path)]).exit_code == 0
    load_recipe(str(path))
    base.write_text(FAR.replace("far", "other"))
    with pytest.raises(RecipeError, match="other.example"):
        load_recipe(str(path))


def test_the_environment_confirms_where_nothing_can_be_remembered(recipe, monkeypatch):
    path = recipe(FAR)
    monkeypatch.setenv("GLIT_TRUST", hashlib.sha256(path.read_bytes()).hexdigest())
    load_recipe(str(path))
