"""A finished dataset with other pairs is the dataset that a build with that rule writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from building import run_build

import glit
from glit.curate import derive as module
from glit.errors import InputError, RecipeError
from glit.plain import as_plain
from glit.storage.store import Store

CENTRED = ["pair.rule=centred", "pair.logit_scale=40", "pair.detector_bonus=4"]


def data(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "data").iterdir())}


@pytest.mark.parametrize(
    "setting", ["pack.image_store=bytes", "pack.image_store=path", "negatives.enabled=true"]
)
def test_the_bytes_and_the_fingerprints_of_a_build(scenes, tmp_path, setting):
    common = {"captions": scenes / "captions.jsonl", "limit": 6}
    run_build(scenes / "images", tmp_path / "plain", overrides=[setting], **common)
    run_build(scenes / "images", tmp_path / "built", overrides=[setting, *CENTRED], **common)
    again = glit.pair(tmp_path / "plain", tmp_path / "again", settings=CENTRED)
    assert data(tmp_path / "again") == data(tmp_path / "built") != data(tmp_path / "plain")
    built = json.loads((tmp_path / "built" / "manifest.json").read_text())
    assert again.manifest.fingerprints == built["fingerprints"]
    assert as_plain(again.manifest.files) == built["files"]
    assert again.manifest.recipe.tables["pair"] == built["recipe"]["pair"]
    assert glit.verify(tmp_path / "again") == []
    cards = [(tmp_path / name / "README.md").read_text() for name in ("again", "built")]
    assert cards[0] == cards[1].replace("built", "again")


def test_a_recipe_with_phrases_wants_them_scored(scenes, tmp_path):
    built = tmp_path / "built"
    run_build(scenes / "images", built, captions=scenes / "captions.jsonl", limit=2, recipe="mini")
    with pytest.raises(RecipeError, match="wants a build with score.phrases = true"):
        glit.pair(built, tmp_path / "again", recipe="glit-mini")
    assert [*tmp_path.iterdir()] == [built]


def test_only_keys_of_pair_may_change(built, tmp_path):
    with pytest.raises(RecipeError, match=r"only keys of \[pair\]"):
        glit.pair(built, tmp_path / "again", settings=["score.phrases=true"])


def test_another_rule_leaves_the_options_of_the_old_one(built, tmp_path):
    once = glit.pair(built, tmp_path / "once", settings=CENTRED)
    twice = glit.pair(once.path, tmp_path / "twice", settings=["pair.rule=argmax"])
    assert twice.manifest.recipe.tables["pair"]["rule"] == "argmax"
    assert "detector_bonus" not in twice.manifest.recipe.tables["pair"]
    assert data(tmp_path / "twice") == data(Path(built))


def test_a_write_that_fails_leaves_nothing(built, tmp_path, monkeypatch):
    def fails(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "dataset_card", fails)
    with pytest.raises(InputError, match="No space left"):
        glit.pair(built, tmp_path / "again", settings=CENTRED)
    assert [*tmp_path.iterdir()] == []
    assert Store(str(tmp_path)).names("again") == set()
