"""``glit recipes``: what each recipe needs, and one of them whole."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib

import pytest

from glit.doctor.models import Model
from glit.doctor.needs import Needs
from glit.pipeline.planning.recipe import load_recipe, read_tables
from glit.recipes.resources import builtin_recipes


def test_every_recipe_is_listed_with_its_models(run_glit, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    done = run_glit("recipes", "--json")
    assert done.code == 0, done.errors
    listed = json.loads(done.output)
    found = {each["name"]: each for each in listed if each["what"] == "build"}
    trained = {each["name"]: each for each in listed if each["what"] == "train"}
    assert found.keys() | trained.keys() == builtin_recipes().keys()
    assert [m["name"] for m in found["lism"]["models"]] == [
        "llava-next-7b", "clip-vit-b-16", "sam-vit-h",
    ]  # fmt: skip
    assert trained.keys() >= {
        "clip", "fast-goal", "goal", "finelip", "mulclip", "f-cast", "fg-clip", "mini", "glit-mini",
    }  # fmt: skip
    assert [model["name"] for model in trained["mini"]["models"]] == ["mini-matcher"]
    assert all(model["here"] for model in (*found["mini"]["models"], *trained["mini"]["models"]))
    shown = run_glit("recipes").output
    assert all(f"\n  {name} " in shown for name in (*found, *trained))
    assert "GB (nothing" in shown and "at least 0" not in shown


def test_a_mini_model_that_is_not_here_is_a_package_and_no_download():
    def model(name, num_bytes, here=False):
        return Model(name=name, recipes=(), here=here, num_bytes=num_bytes, fetch="")

    known = {"name": "r", "about": "", "what": "build", "extras": ()}
    minis = Needs(**known, models=(model("mini-clip", 0),), install="pip install x")
    assert minis.line == "install packages"
    own = Needs(
        **known, models=(model("me/own", 0), model("b", 2_000_000)), install="", captioner="b"
    )
    assert own.line == "download at least 2 MB (me/own with --captions)"


@pytest.mark.parametrize("name", builtin_recipes())
def test_a_recipe_shown_whole_is_a_recipe_of_its_own(name, run_glit, tmp_path):
    done = run_glit("recipes", name)
    assert done.code == 0, done.errors
    tables = tomllib.loads(done.output)
    before = read_tables(name)
    assert tables == {key: value for key, value in before.items() if key != "name"}
    (tmp_path / "own.toml").write_text(done.output)
    if "train" not in tables:
        own, same = load_recipe(str(tmp_path / "own.toml")), load_recipe(name)
        assert {**own.as_dict(), "name": name} == same.as_dict()


def test_a_changed_and_an_unknown_recipe(run_glit):
    changed = run_glit("recipes", "mini", "--set", "pair.rule=lism")
    assert tomllib.loads(changed.output)["pair"] == {"rule": "lism"}
    done = run_glit("recipes", "flims")
    assert done.code == 2 and "did you mean 'flism'" in done.errors


def test_what_a_file_holds_does_not_reach_the_terminal_as_it_is(run_glit, tmp_path):
    about = 'quoted "\x9b31m \u202e ü 猫 \U000e0001'
    (tmp_path / "own.toml").write_text(
        f"about = {json.dumps(about)}\nbase = 'mini'\n".replace("\\udb40\\udc01", "\\U000e0001")
    )
    done = run_glit("recipes", tmp_path / "own.toml")
    assert done.code == 0 and tomllib.loads(done.output)["about"] == about
    assert all(c.isprintable() or c == "\n" for c in done.output)


@pytest.mark.slow
def test_without_torch_the_list_says_what_to_install():
    """In a process where no package of the extra `models` can be imported."""
    code = (
        "import sys, importlib.abc, importlib.util\n"
        "names = {'torch', 'torchvision', 'transformers', 'accelerate', 'safetensors', 'scipy'}\n"
        "class Hidden(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in names:\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "real = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda n, p=None: None if n in names else real(n, p)\n"
        "sys.meta_path.insert(0, Hidden())\n"
        "sys.argv = ['glit', 'recipes', '--json']\n"
        "from glit.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = {each["name"]: each for each in json.loads(done.stdout)}
    assert "package torch" in found["goal"]["install"] and found["provided"]["install"] == ""
    assert found["goal"]["models"][0]["name"] == "openai/clip-vit-base-patch16"
