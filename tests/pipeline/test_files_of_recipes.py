"""Files that a recipe names: found again from any folder, and in no published file by their path."""

from __future__ import annotations

import json
import os
import shutil

from building import tiny_clip

import glit
from glit.dataset.manifest import read_manifest
from glit.storage.store import Store


def test_a_build_is_added_to_and_retried_from_another_folder(scenes, tmp_path, monkeypatch):
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "recipes").mkdir(parents=True)
    there.mkdir()
    (here / "recipes" / "ask.txt").write_text("Describe the scene.")
    (here / "recipes" / "robots.txt").write_text("User-agent: *\nAllow: /\n")
    (here / "recipes" / "own.toml").write_text(
        'base = "mini"\n[caption]\nprompt = "ask.txt"\nmax_tokens = 60\n'
        f'[propose]\nbackend = "grid"\n[score]\nmodel = "{tiny_clip()}"\n'
        '[rights]\nenabled = true\nreservations = ["robots.txt"]\n'
    )
    images = tmp_path / "images"
    images.mkdir()
    first, second, third = sorted((scenes / "images").iterdir())[:3]
    shutil.copy(first, images)
    monkeypatch.chdir(here)
    built = glit.build(
        images, tmp_path / "out", recipe="recipes/own.toml", executor="local", quiet=True
    )
    shutil.copy(second, images)
    monkeypatch.chdir(there)
    assert len(glit.add(tmp_path / "out", executor="local", quiet=True)) == 2
    glit.retry(tmp_path / "out", executor="local", quiet=True)
    monkeypatch.chdir(here)
    shutil.copy(third, images)
    glit.add(tmp_path / "out", executor="local", quiet=True)
    tables = read_manifest(Store(tmp_path / "out")).recipe.tables
    assert tables["caption"]["prompt"] == "ask.txt"
    assert tables["rights"]["reservations"] == ["robots.txt"]
    published = [name for name in os.listdir(tmp_path / "out") if name != "work"]
    for name in filter(lambda name: name.endswith((".json", ".md")), published):
        assert str(tmp_path) not in (tmp_path / "out" / name).read_text()
    assert len(built) == 1 and json.loads((tmp_path / "out" / "work" / "state.json").read_text())
