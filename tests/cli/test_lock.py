"""``glit lock``."""

from __future__ import annotations

import json

from glit.pipeline.planning.lock import lock_path


def test_the_lock_goes_beside_the_recipe(tmp_path, monkeypatch, run_glit):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "mine.toml").write_text('base = "mini"\n')
    assert run_glit("lock", "sub/mine.toml").code == 0
    assert run_glit("lock", "mini").code == 0
    assert run_glit("lock", "mini", "--set", "propose.backend=grid").code == 0
    assert set(json.loads((tmp_path / "mini.lock.json").read_text())["models"]) == {
        "captioner", "matcher", "tokenizer",
    }  # fmt: skip
    assert json.loads((tmp_path / "sub" / "mine.lock.json").read_text())["recipe"] == "mine"
    assert (tmp_path / "mini.lock.json").is_file()
    assert lock_path("flism").name == "flism.lock.json"


def test_what_is_printed(tmp_path, monkeypatch, run_glit):
    monkeypatch.chdir(tmp_path)
    *roles, last = run_glit("lock", "mini").output.splitlines()
    assert [line.split(" at ")[0] for line in roles] == [
        "captioner: mini-captioner", "matcher: mini-matcher", "proposer: mini-proposer",
        "tokenizer: mini-matcher",
    ]  # fmt: skip
    assert last == "wrote mini.lock.json"


def test_a_recipe_that_does_not_exist(tmp_path, monkeypatch, run_glit):
    monkeypatch.chdir(tmp_path)
    done = run_glit("lock", "minni")
    assert done.code == 2
    assert done.errors == ("glit: no recipe named 'minni' and no such file; did you mean 'mini'?\n")
    assert [*tmp_path.iterdir()] == []
