"""Which versions a manifest names, and which it remembers."""

from __future__ import annotations

import json
import platform
from dataclasses import replace

import pytest
from building import Counting, run_build, with_captions_beside

from glit.dataset.reader import Dataset
from glit.dataset.verify import verify
from glit.pipeline.planning.recipe import load_recipe
from glit.pipeline.work import state as versions
from glit.pipeline.work.state import versions_of
from glit.recipes.extras import DISTRIBUTIONS, MODULES


@pytest.fixture
def images(scenes, tmp_path):
    """Two scenes in a chunk of their own each."""
    return with_captions_beside(scenes, tmp_path / "images", 2)


SETTINGS = {"overrides": ["caption.backend=sidecar", "propose.backend=grid"]}


def test_versions_are_those_of_the_recipe_and_not_of_the_process(built):
    found = json.loads((built / "manifest.json").read_text())["packages"]
    assert found["python"] == platform.python_version()
    assert found.keys() >= {"numpy", "pyarrow", "sentencex", "tokenizers", "torch", "transformers"}
    assert not found.keys() & {"ray", "pytest", "ultralytics", "segment-anything", "vllm"}


@pytest.mark.parametrize(
    ("override", "named", "wanted"),
    [
        ("propose.backend=sam", "transformers", True),
        ("propose.backend=sam", "segment-anything", False),
        ("split.splitter=punkt", "nltk", True),
        ("split.splitter=punkt", "sentencex", False),
        ("score.phrases=true", "textblob", True),
    ],
)
def test_a_step_brings_its_packages(monkeypatch, override, named, wanted):
    monkeypatch.setattr(versions, "installed_packages", lambda names: dict.fromkeys(names, "1"))
    recipe = load_recipe("mini", overrides=["caption.backend=sidecar", override])
    assert (named in versions_of(recipe)) is wanted


def test_every_extra_of_a_backend_has_its_packages():
    from glit.models.backends.captioners import CAPTIONERS
    from glit.models.backends.matchers import MATCHERS
    from glit.models.backends.proposers import PROPOSERS

    backends = [*CAPTIONERS.values(), *MATCHERS.values(), *PROPOSERS.values()]
    asked = {extra for backend in backends for extra in backend.extras}
    assert asked <= DISTRIBUTIONS.keys() <= MODULES.keys()


@pytest.mark.slow
def test_versions_of_an_interrupted_build_are_remembered(images, tmp_path, monkeypatch):
    out = tmp_path / "out"
    real = versions.installed_packages
    with monkeypatch.context() as older:
        older.setattr(versions, "installed_packages", lambda n: {**real(n), "numpy": "1.0"})
        with pytest.raises(KeyboardInterrupt):
            run_build(images, out, executor=Counting(stop_after=1), **SETTINGS)
    manifest = run_build(images, out, **SETTINGS)
    assert manifest.packages_before == {"numpy": ("1.0",)}
    assert manifest.packages["numpy"] != "1.0"
    assert list(verify(str(out))) == []

    # neither the note nor the list is needed to read, to verify or to build again
    (out / "work" / "state.json").write_bytes(b"no")
    (out / "work" / "state.copy.json").unlink()
    (out / "manifest.json").unlink()
    again = run_build(images, out, **SETTINGS)
    assert not again.packages_before
    (out / "manifest.json").write_bytes(replace(again, packages={}).as_bytes())
    assert list(verify(str(out))) == []
    assert len(Dataset(str(out))) == 2
