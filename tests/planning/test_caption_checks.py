"""The setting ``caption.checks``: fingerprints of before, and datasets that were built then."""

from __future__ import annotations

import hashlib
import shutil
from unittest import mock

import pytest
from adding import Notes
from building import Counting, edit_state, plan_of, run_build

from glit.dataset.reader import Dataset
from glit.errors import UserError
from glit.executors.local import LocalExecutor
from glit.inputs.lookup import BroughtCaptions, UserTable
from glit.models.weights import Resolved
from glit.pipeline.add import add
from glit.planning.recipe import load_recipe, recipe_of_build, recipes_differ
from glit.recipes.resources import builtin_recipes
from glit.stages.pair import PairConfig
from tools import golden

BEFORE = {  # of caption and pack on a CPU, as tests/golden had them before there was the setting
    "flism": ("4fe326201fdf", "5518944f3df3"),
    "captions-only": ("4fe326201fdf", "cea3a38e25d9"),
    "fg-clip": ("0735c1a71f82", "d760d6ba18eb"),
    "beta-clip": ("0735c1a71f82", "bd7b6f516062"),
    "annotated": ("ef9d27679335", "28ae61ceece7"),
    "captions": ("f351ef2a5ae7", "c668311a323f"),
}


def fingerprints(name: str, *settings: str) -> dict[str, str]:
    """Of a recipe on a CPU; models are taken to be here, as in tools.golden."""

    def at_hand(model: str, revision: str = "main", **_) -> Resolved:
        digest = hashlib.sha256(model.encode()).hexdigest()
        return Resolved(name=model, path=golden.FOLDER, revision=revision, sha256=digest)

    with (
        mock.patch("glit.planning.plan.resolve", at_hand),
        mock.patch.object(PairConfig, "check_calibration"),
    ):
        return dict(
            plan_of(
                load_recipe(name, overrides=settings),
                captions=BroughtCaptions(name="captions.jsonl", table="captions.parquet"),
                regions=UserTable(name="regions.jsonl", table="regions.parquet"),
            ).fingerprints
        )


@pytest.mark.parametrize("name", BEFORE)
def test_the_first_checks_have_the_fingerprints_of_before(name) -> None:
    found = fingerprints(name, "caption.checks=1")
    assert (found["caption"], found["pack"]) == BEFORE[name]


@pytest.mark.parametrize("name", builtin_recipes())
def test_only_captions_that_a_model_writes_depend_on_the_checks(name) -> None:
    now, before = fingerprints(name), fingerprints(name, "caption.checks=1")
    written = load_recipe(name).caption.backend not in ("provided", "sidecar")
    assert {step for step in now if now[step] != before[step]} == (
        now.keys() - {"ingest", "propose", "dedup", "quality", "exclude"} if written else set()
    )


def test_a_recipe_noted_before_there_was_the_setting_has_the_first_checks() -> None:
    now = load_recipe("mini")
    noted = now.as_dict()
    del noted["caption"]["checks"]
    assert recipe_of_build(noted).caption.checks == 1
    assert recipes_differ(noted, now) == "caption.checks = 2 (there: 1)"
    assert recipes_differ(now.as_dict(), now) == ""
    assert recipes_differ({"name": "of another glit", "caption": {"odd": 1}}, now) == ""


def test_a_dataset_of_then_takes_additions_and_says_which_key_differs(scenes, tmp_path) -> None:
    folder, out = tmp_path / "images", tmp_path / "out"
    folder.mkdir()
    first, second = sorted((scenes / "images").iterdir())[:2]
    shutil.copy(first, folder)
    few = ["caption.max_tokens=60"]
    run_build(folder, out, overrides=[*few, "caption.checks=1"])
    edit_state(out / "work", lambda state: state["recipe"]["caption"].pop("checks"))
    with pytest.raises(UserError, match=r"here it would be caption.checks = 2 \(there: 1\)"):
        run_build(folder, out, overrides=few)
    shutil.copy(second, folder)
    add(str(out), LocalExecutor(), Notes())
    assert len(Dataset(out)) == 2
    assert Dataset(out).manifest.recipe.tables["caption"]["checks"] == 1


def test_who_resumes_a_build_of_then_is_told_before_captions_are_written_anew(
    scenes, tmp_path
) -> None:
    folder, out, notes = tmp_path / "images", tmp_path / "out", Notes()
    folder.mkdir()
    shutil.copy(sorted((scenes / "images").iterdir())[0], folder)
    few = ["caption.max_tokens=60"]
    with pytest.raises(KeyboardInterrupt):
        run_build(
            folder, out, overrides=[*few, "caption.checks=1"], executor=Counting(stop_after=2)
        )
    with pytest.raises(KeyboardInterrupt):
        run_build(folder, out, overrides=few, executor=Counting(stop_after=1), progress=notes)
    assert "caption.checks = 2 (there: 1)" in " ".join(notes.told)
