"""Parts of other packages: loaded everywhere, remembered, and missed by name."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from building import Counting, data_bytes, run_build, tiny_clip, with_captions_beside

import glit as api
from glit import stages
from glit.errors import InputError, MissingPluginError, RecipeError
from glit.exporters import EXPORTERS
from glit.inputs.published import FORMATS
from glit.models.backends.grounders import GROUNDERS
from glit.models.backends.matchers import MATCHERS
from glit.pipeline.planning.recipe import load_recipe
from glit.recipes import plugins, trust
from glit.recipes.plugins import VARIABLE, load, plugin_of, require_loaded
from glit.recipes.toml_tables import trusted_tables

TEMPLATE = Path(__file__).parent.parent / "docs" / "plugin"
FILTER = """
from dataclasses import dataclass, replace
from glit import extend
from glit.stages.base import Stage

@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    enabled: bool = False
    least: int = 0

class Nothing(Stage):
    name, version, config = "nothing", 1, Config
    reads, filters = ("image",), True

    @classmethod
    def open(cls, plan):
        return cls()

    def process(self, samples, images):
        yield from samples

extend.add_stage(Nothing, before="caption")
"""


WEIGHTLESS = """
import numpy as np
from glit import extend
from glit.models.backends.base import Backend
from glit.models.backends.protocols import PhraseDetections

class Places:
    def __init__(self, config, model):
        assert model is None

    def embed_regions(self, images, boxes):
        return [np.eye(2, dtype=np.float32)[(each[:, 0] > 0).astype(int)] for each in boxes]

    def embed_sentences(self, sentences):
        return np.eye(2, dtype=np.float32)[[len(each) % 2 for each in sentences]]

class Corners:
    def __init__(self, config, model):
        assert model is None

    def find(self, images, phrases):
        corner = PhraseDetections(boxes=np.array([[0.0, 0, 9, 9]]), scores=np.ones(1, np.float32))
        return [[corner for _ in each] for each in phrases]

extend.add_matcher("places", Backend(make=Places, needs_model=False))
extend.add_grounder("corners", Backend(make=Corners, needs_model=False))
"""


@pytest.fixture(autouse=True)
def _as_before(monkeypatch):
    """What a test loads is gone after it."""
    monkeypatch.setattr(plugins, "_loaded", {})
    monkeypatch.setattr(stages, "FLOW", stages.FLOW)
    with contextlib.ExitStack() as restored:
        for registry in (MATCHERS, GROUNDERS, EXPORTERS, FORMATS):
            restored.enter_context(patch.dict(registry))
        yield
    for name in [name for name in sys.modules if name.startswith(("glit_plugin_", "my_part"))]:
        del sys.modules[name]


def written(folder: Path, text: str = FILTER, name: str = "nothing_filter.py") -> Path:
    (folder / name).write_text(text)
    recipe = folder / "my.toml"
    recipe.write_text(
        f'base = "captions-only"\nplugins = ["{name}"]\n[nothing]\nenabled = true\n'
        '[caption]\nbackend = "sidecar"\n'
    )
    return recipe


def test_a_recipe_is_asked_for_before_its_code_runs(tmp_path, monkeypatch):
    recipe = written(
        tmp_path, f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n{FILTER}"
    )
    with pytest.raises(
        RecipeError, match=r"asks for plugins = \['nothing_filter.py'\], whose code"
    ):
        load_recipe(str(recipe))
    assert not (tmp_path / "ran").exists()
    _, (_, contents) = trusted_tables(str(recipe), confirmed=True)
    monkeypatch.setenv(trust.VARIABLE, trust.digest(contents))
    trusted_tables(str(recipe))
    with (tmp_path / "nothing_filter.py").open("a") as file:
        file.write("# changed")
    with pytest.raises(RecipeError, match="whose code runs"):
        load_recipe(str(recipe))
    assert not (tmp_path / "ran").exists()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nothing_filter.py"))
    recipe.write_text('base = "captions-only"\n[nothing]\nenabled = true\n')
    found = load_recipe(str(recipe))
    assert (tmp_path / "ran").exists() and found.nothing.enabled
    (plugin,) = found.plugins
    assert (
        found.as_dict()["plugins"] == [{"name": "nothing_filter.py", "sha256": plugin.sha256}]
        and len(plugin.sha256) == 64
    )
    assert not load_recipe("mini").plugins


def test_a_plan_brings_a_single_file_to_another_process(tmp_path, monkeypatch):
    written(tmp_path)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nothing_filter.py"))
    recipe = load_recipe("captions-only", overrides=["nothing.enabled=true", "nothing.least=3"])
    (tmp_path / "recipe.pickle").write_bytes(pickle.dumps(recipe))
    (tmp_path / "nothing_filter.py").unlink()
    program = (
        "import pickle, sys; found = pickle.load(open(sys.argv[1], 'rb'));"
        "from glit.stages import all_steps;"
        "print(found.nothing.least, 'nothing' in [step.name for step in all_steps()])"
    )
    environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "recipe.pickle"], env=environment,
        capture_output=True, text=True, cwd=tmp_path.parent,
    )  # fmt: skip
    assert done.stdout.split() == ["3", "True"], done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "nothing_filter.py: No such file"),
        ("1 / 0", r"plugin nothing_filter.py: cannot be run \(.*division by zero"),
        ("def (", r"plugin nothing_filter.py: cannot be run \("),
        ("import no_such_package", "cannot be run .*no_such_package"),
    ],
)
def test_what_cannot_be_loaded_is_one_line(tmp_path, text, said):
    if text is not None:
        (tmp_path / "nothing_filter.py").write_text(text)
    with pytest.raises(RecipeError, match=said):
        load(["nothing_filter.py"], folder=tmp_path)
    assert not plugins.loaded() and "glit_plugin_nothing_filter" not in sys.modules


def test_a_module_that_is_not_there_or_breaks(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RecipeError, match="no module 'my_part' can be imported here; install"):
        load(["my_part.inner"])
    (tmp_path / "my_part.py").write_text("import glit.no_such")
    with pytest.raises(RecipeError, match=r"plugin my_part: cannot be imported .*glit\.no_such"):
        load(["my_part"])
    with pytest.raises(RecipeError, match="found '', want names"):
        load(["", "  "])


def test_the_hash_is_of_all_files_of_the_package(tmp_path, monkeypatch):
    package = tmp_path / "my_parts"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("def part(): ...")
    (package / "beside.py").write_text("VALUE = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = []
    for value in (1, 1, 2):
        (package / "beside.py").write_text(f"VALUE = {value}")
        plugins._loaded.clear()
        load(["my_parts.part"])
        found.append(plugins.loaded()[0])
    assert found[0].sha256 == found[1].sha256 != found[2].sha256
    own = plugin_of(sys.modules["my_parts.part"].part)
    assert own is not None and own.identity()["name"] == "my_parts.part"
    assert plugin_of(load_recipe) is None and plugin_of(json.dumps) is None


def test_two_of_a_name_are_refused(tmp_path):
    written(tmp_path)
    load(["nothing_filter.py"], folder=tmp_path)
    load(["nothing_filter.py"], folder=tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    written(other, FILTER + "\n# changed")
    with pytest.raises(RecipeError, match="another file nothing_filter.py is loaded already"):
        load(["nothing_filter.py"], folder=other)
    (tmp_path / "second.py").write_text(FILTER)
    with pytest.raises(RecipeError, match="stage 'nothing': there is one of that name already"):
        load(["second.py"], folder=tmp_path)


def test_what_is_missing_says_how_to_get_it():
    recorded = {"name": "my_pkg.parts", "package": "my-pkg", "version": "1.2", "sha256": "0" * 64}
    with pytest.raises(
        MissingPluginError,
        match="the plugin my_pkg.parts of my-pkg 1.2, which is not loaded here; install my-pkg and "
        "set GLIT_PLUGINS=my_pkg.parts",
    ):
        require_loaded([recorded], wanted_by="the recipe 'mini'")


def weightless(images: Path, output: Path, **rest):
    """A build whose matcher and grounder are of a plugin and have no weights."""
    overrides = [
        "caption.backend=sidecar", "propose.backend=grid", "score.backend=places",
        "ground.enabled=true", "ground.backend=corners", "ingest.chunk_size=2",
        "pair.rule=centred", "pair.grounding_weight=5",
    ]  # fmt: skip
    return run_build(images, output, recipe="mini", overrides=overrides, **rest)


def test_parts_without_weights_are_stopped_resumed_and_added_to(scenes, tmp_path, monkeypatch):
    (tmp_path / "weightless.py").write_text(WEIGHTLESS)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "weightless.py"))
    images = with_captions_beside(scenes, tmp_path / "images", 4)
    whole = weightless(images, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        weightless(images, tmp_path / "stopped", executor=Counting(stop_after=9))
    resumed = Counting()
    weightless(images, tmp_path / "stopped", executor=resumed)
    assert resumed.stages.get("caption", 0) < 2
    assert data_bytes(tmp_path / "whole") == data_bytes(tmp_path / "stopped")
    assert "matcher" not in whole.models and "grounder" not in whole.models
    assert [each["name"] for each in whole.recipe.plugins] == ["weightless.py"]
    for row in api.open_dataset(tmp_path / "whole"):
        assert "phrase" in {region.source for region in row.regions}
        assert row.agreement is not None
        assert row.similarity.max() == 1 and row.agreement.max() == 1
    for number in (4, 5):
        shutil.copy(scenes / "images" / f"{number:06d}.png", images)
        (images / f"{number:06d}.txt").write_text("A green triangle.")
    assert len(api.add(tmp_path / "whole", executor="local", quiet=True)) == 6
    assert api.verify(tmp_path / "whole") == []
    again = ["pair.grounding_weight=1"]
    assert len(api.pair(tmp_path / "whole", tmp_path / "again", settings=again)) == 6


def test_a_matcher_that_cannot_is_refused_before_any_work(scenes, tmp_path, monkeypatch):
    (tmp_path / "weightless.py").write_text(WEIGHTLESS)
    load(["weightless.py"], folder=tmp_path)
    with pytest.raises(RecipeError, match=r"crop = 'dense': backend = 'places' does not embed"):
        load_recipe("mini", overrides=["score.backend=places", "score.crop=dense"])
    chosen = ["score.backend=places", "score.min_caption_similarity=0.1"]
    assert load_recipe("mini", overrides=chosen).score.min_caption_similarity == 0.1
    assert load_recipe("mini", overrides=["score.crop=dense"]).score.crop == "dense"


def test_the_limits_of_a_plugins_table_hold(tmp_path):
    limits = "least: int = limited(0, least=0, most=9)"
    text = FILTER.replace("least: int = 0", limits)
    written(tmp_path, f"from glit.plain import limited\n{text}")
    load(["nothing_filter.py"], folder=tmp_path)
    on = "nothing.enabled=true"
    for value in (-1, 10):
        with pytest.raises(RecipeError, match=rf"^\[nothing\] least: found {value}, want 0 to 9$"):
            load_recipe("mini", overrides=[on, f"nothing.least={value}"])
    assert load_recipe("mini", overrides=[on, "nothing.least=9"]).nothing.least == 9


FORMATS_OF_TWO = """
from glit import extend
from glit.inputs.published.files import annotated

def write(dataset, folder, report):
    (folder / "names.txt").write_text("".join(f"{row.source_path}\\n" for row in dataset))

def read(annotations, images, split):
    for line in annotations.read_text().splitlines():
        yield annotated(images / line, ["A scene."])

extend.add_exporter("names", write)
extend.add_reader("names", read)
"""


def test_functions_of_the_library_load_plugins(scenes, built, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="--to names: no such format; [^;]*$"):
        api.export(built, to="names", output=tmp_path / "names")
    (tmp_path / "names_formats.py").write_text(FORMATS_OF_TWO)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "names_formats.py"))
    api.export(built, to="names", output=tmp_path / "names")
    names = tmp_path / "names" / "names.txt"
    assert "000003.png" in names.read_text().split()
    report = api.audit(names, format="names", images=scenes / "images")
    assert report.images == 24
    public = {name: getattr(api, name) for name in api.__all__ if name != "load_recipe"}
    functions = {name: each for name, each in public.items() if inspect.isfunction(each)}
    assert len(functions) > 20
    assert [name for name, each in functions.items() if not hasattr(each, "__wrapped__")] == []


def test_a_part_of_a_plugin_that_is_away_names_it(built_copy, tmp_path):
    manifest = json.loads((built_copy / "manifest.json").read_text())
    recorded = {"name": "my_pkg.parts", "package": "my-pkg", "version": "1.2", "sha256": "0" * 64}
    manifest["recipe"]["plugins"] = [recorded]
    (built_copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(
        InputError, match="--to names: no such format; .*; .* was made with the plugin my_pkg.parts"
        " of my-pkg 1.2, which is not loaded here; install my-pkg and set GLIT_PLUGINS=my_pkg.parts"
    ):  # fmt: skip
        api.export(built_copy, to="names", output=tmp_path / "names")
    manifest["recipe"]["pair"]["rule"] = "nearest"
    (built_copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(MissingPluginError, match="the dataset was made with the plugin my_pkg"):
        api.pair(built_copy, tmp_path / "paired")


# the package that docs/extend.md shows, installed as a user would


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    target, source = (tmp_path_factory.mktemp(name) for name in ("site", "source"))
    shutil.copytree(TEMPLATE, source / "plugin")
    words = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target"]
    subprocess.run([sys.executable, *words, target, source / "plugin"], check=True, timeout=300)
    return target


@pytest.fixture
def glit(warm_glit, tmp_path):
    """``glit(*words)`` is what a command line says; with the package, unless it is away."""

    def run(*words: str, site: Path | None = None, code: int = 0) -> str:
        return warm_glit.said(words, tmp_path, code=code, paths=[site] if site else [])

    return run


def in_new_process(*words: str, folder: Path, site: Path) -> str:
    """What a command prints; processes that it starts find the package as it does."""
    environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
    environment["PYTHONPATH"] = os.pathsep.join([str(site), environment.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "glit", *words]
    done = subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_the_package_of_the_docs_from_end_to_end(installed, scenes, tmp_path, glit):
    """Every part, from the command line; then the dataset where the package is not."""
    shutil.copytree(scenes / "images", tmp_path / "images")
    settings = [
        "light.enabled=true", "light.least=60", "caption.backend=brightness", "pair.rule=lead",
        "propose.backend=stripes", "score.backend=colours", f"split.tokenizer={tiny_clip()}",
    ]  # fmt: skip
    words = [word for each in settings for word in ("--set", each)]
    build = ["build", "images", "-r", "mini", *words]
    glit(*build, "--executor", "local", "-o", "one", site=installed)
    in_new_process(*build, "-o", "two", "--executor", "ray", folder=tmp_path, site=installed)
    data = [sorted((tmp_path / each / "data").iterdir()) for each in ("one", "two")]
    assert [a.read_bytes() for a in data[0]] == [b.read_bytes() for b in data[1]]
    manifest = json.loads((tmp_path / "one" / "manifest.json").read_text())
    (recorded,) = manifest["recipe"]["plugins"]
    assert recorded["name"] == "glit_example" and recorded["package"] == "glit-example"
    dropped = manifest["counts"]["drops"]["light/too_dark"]
    assert 0 < dropped < 24 and manifest["columns"]["light"]
    for name in ("README.md", "croissant.json"):
        assert "glit_example (glit-example 1.0.0)" in (tmp_path / "one" / name).read_text()
    assert "Mean of all pixels, 0 to 255" in (tmp_path / "one" / "croissant.json").read_text()
    assert "light" in glit("status", "one", site=installed)
    glit("verify", "one", site=installed)
    glit(
        "retry", "one", "--stage", "light", "--set", "light.least=0", "--executor", "local",
        site=installed,
    )  # fmt: skip
    retried = json.loads((tmp_path / "one" / "manifest.json").read_text())
    assert retried["counts"]["dropped"] == 0 and retried["counts"]["shipped"] == 24
    glit("verify", "one", site=installed)
    shutil.copy(TEMPLATE.parent / "pairs.png", tmp_path / "images")
    glit("add", "one", "--executor", "local", site=installed)
    added = json.loads((tmp_path / "one" / "manifest.json").read_text())
    assert added["counts"]["shipped"] == 25
    glit("verify", "one", site=installed)
    glit("export", "one", "--to", "csv", "-o", "csv", site=installed)
    assert "A bright picture." in (tmp_path / "csv" / "pairs.csv").read_text()
    names = sorted(path.name for path in (tmp_path / "images").iterdir())
    (tmp_path / "captions.txt").write_text("".join(f"{name}\tA scene.\n" for name in names))
    glit(
        "import", "captions.txt", "--format", "captions-txt", "--images", "images", "-o",
        "c.jsonl", site=installed,
    )  # fmt: skip
    assert len((tmp_path / "c.jsonl").read_text().splitlines()) == 25
    _learn(glit, tmp_path, installed)
    _without_it(glit, tmp_path)


def _learn(glit, folder: Path, site: Path) -> None:
    settings = ["train.batch_size=8", f"train.model={tiny_clip()}", "train.lambda_first=0.5"]
    words = [word for each in settings for word in ("--set", each)]
    train = ["train", "one", "-o", "run", "--objective", "long+first", "-r", "mini"]
    glit(*train, *words, "--set", "train.epochs=1", site=site)
    glit("train", "one", "-o", "run", "--resume", "--set", "train.epochs=2", site=site)
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    assert "loss_first" in json.loads(lines[0])
    said = glit("train", "one", "-o", "run", "--resume", code=2)
    assert "the run run was made with the plugin glit_example of glit-example 1.0.0" in said
    assert "cosine" in glit("eval", "words", str(tiny_clip()), "one", site=site)
    helped = in_new_process("eval", "--help", folder=folder, site=site)
    assert "words            mean cosine of captions and first words" in helped


def _without_it(glit, folder: Path) -> None:
    said = glit("verify", "one")
    assert "the plugin glit_example of glit-example 1.0.0" in said and "25 samples" in said
    glit("view", "one", "-o", "report.html")
    assert "glit-example" in (folder / "report.html").read_text()
    glit("export", "one", "--to", "coco", "-o", "coco")
    assert "25" in glit("query", "one", "SELECT count(light) FROM samples")
    for command in (["retry", "one"], ["add", "one"]):
        said = glit(*command, "--executor", "local", code=2)
        assert "the plugin glit_example of glit-example 1.0.0, which is not loaded here" in said
