"""A lock names the models of a recipe, and a build against it takes those or none."""

from __future__ import annotations

import json
import shutil

import pytest
from building import edit_state, models_of, plan_of, quiet, run_build
from huggingface_hub import constants

from glit.dataset.manifest import read_manifest
from glit.errors import UserError, WeightsError
from glit.pipeline.executors.local import LocalExecutor
from glit.pipeline.planning.lock import Lock, lock_text, read_lock
from glit.pipeline.planning.recipe import load_recipe
from glit.pipeline.retry import retry
from glit.plain import as_plain
from glit.recipes.resources import mini_model
from glit.storage.store import Store

OLD, NEW = "a" * 40, "b" * 40


def write_lock(path, recipe="mini", overrides=()):
    loaded = load_recipe(recipe, overrides=overrides)
    path.write_text(lock_text(loaded.name, models_of(loaded)))
    return path


def test_the_file_has_an_identity_a_role_sorted_and_without_a_path(tmp_path):
    copy = shutil.copytree(mini_model("proposer"), tmp_path / "my-detector")
    path = write_lock(tmp_path / "mini.lock.json", overrides=[f"propose.model={copy}"])
    text = path.read_text()
    content = json.loads(text)
    assert text == json.dumps(content, indent=2, sort_keys=True) + "\n"
    assert str(tmp_path) not in text
    models = models_of(load_recipe("mini"))
    assert content["models"]["matcher"] == models["matcher"].identity()
    assert set(content["models"]) == {"captioner", "proposer", "matcher", "tokenizer"}
    assert content["models"]["proposer"] == {
        "name": "my-detector",
        "revision": "local",
        "sha256": models["proposer"].sha256,
        "licence": "",
    }


@pytest.fixture(scope="module")
def locked(scenes, tmp_path_factory):
    """A dataset that was built against a lock, and the lock; not to be written into."""
    folder = tmp_path_factory.mktemp("locked")
    lock = read_lock(write_lock(folder / "mini.lock.json"))
    run_build(
        scenes / "images", folder / "dataset", captions=scenes / "captions.jsonl", limit=4,
        lock=lock, recipe="mini",
    )  # fmt: skip
    return folder / "dataset", lock


def test_a_build_against_its_lock_records_the_same_identities(locked):
    dataset, lock = locked
    assert as_plain(read_manifest(Store(dataset)).models) == {
        role: model for role, model in lock.models.items() if role != "captioner"
    }
    state = json.loads((dataset / "work" / "state.json").read_text())
    assert state["lock"] == lock.models


def test_the_same_files_from_another_place_pass(tmp_path):
    lock = read_lock(write_lock(tmp_path / "mini.lock.json"))
    copy = shutil.copytree(mini_model("proposer"), tmp_path / "copy")
    recipe = load_recipe("mini", overrides=[f"propose.model={copy}"])
    assert models_of(recipe, lock=lock)["proposer"].path == copy


def test_a_role_that_is_not_in_the_lock(tmp_path):
    lock = read_lock(write_lock(tmp_path / "l.json", overrides=["propose.backend=grid"]))
    with pytest.raises(WeightsError, match="proposer: found 'mini-proposer' .*locked is none"):
        plan_of(load_recipe("mini"), lock=lock)


def test_a_locked_commit_is_taken_though_main_has_moved(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    repo = tmp_path / "hub" / "models--somebody--detector"
    for commit in (OLD, NEW):
        shutil.copytree(mini_model("proposer"), repo / "snapshots" / commit)
    with (repo / "snapshots" / NEW / "config.json").open("a") as file:
        file.write(" ")
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(OLD)
    settings = ["propose.model=somebody/detector"]
    lock = read_lock(write_lock(tmp_path / "l.json", overrides=settings))
    (repo / "refs" / "main").write_text(NEW)
    recipe = load_recipe("mini", overrides=settings)
    assert models_of(recipe)["proposer"].revision == NEW
    assert models_of(recipe, lock=lock)["proposer"].revision == OLD
    shutil.rmtree(repo / "snapshots" / OLD)
    with pytest.raises(WeightsError, match=f"hf download somebody/detector --revision {OLD}"):
        models_of(recipe, lock=lock)


def test_a_retry_keeps_to_the_lock_of_its_build(locked, tmp_path):
    dataset = shutil.copytree(locked[0], tmp_path / "dataset")
    edit_state(dataset / "work", lambda state: state["lock"]["matcher"].update(sha256="0" * 64))
    with pytest.raises(WeightsError, match="matcher: found 'mini-matcher'"):
        retry(str(dataset), LocalExecutor(), quiet())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read .No such file.*make one with glit lock"),
        ("{", "not valid JSON"),
        ("[]", "not a lock that this glit reads"),
        ('{"format": "glit-lock", "version": 2, "models": {}}', "not a lock that this glit reads"),
        ('{"format": "glit-lock", "version": 1, "models": {"a": 1}}', "not a lock that this glit"),
    ],
)
def test_what_is_no_lock(tmp_path, content, message):
    path = tmp_path / "x.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=message):
        read_lock(path)


def test_only_whole_commits_of_the_same_model_are_taken_from_a_lock():
    models = {"proposer": {"name": "m", "revision": OLD}, "matcher": {"name": "c", "revision": "1"}}
    lock = Lock(where="l", models=models)
    assert lock.revision("proposer", "m") == OLD
    assert lock.revision("proposer", "other") is None
    assert lock.revision("matcher", "c") is None
    assert lock.revision("captioner", "m") is None
