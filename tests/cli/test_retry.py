"""``glit retry``."""

from __future__ import annotations

import json
import shutil

import pytest
from building import data_bytes, edit_state, tiny, with_captions_beside
from PIL import Image


def test_what_comes_back_is_counted(scenes, tmp_path, run_glit):
    """The first of four scenes cannot be read; its picture comes later."""
    images, out = with_captions_beside(scenes, tmp_path / "images", 4), tmp_path / "out"
    shutil.move(images / "000000.png", tmp_path / "later.png")
    (images / "000000.png").symlink_to(tmp_path / "nowhere.png")
    sets = [word for each in (*tiny(), "caption.backend=sidecar") for word in ("--set", each)]
    done = run_glit("build", images, "-o", out, "-r", "mini", "--executor", "local", *sets)
    assert "1 ingest/unreadable" in done.output
    shutil.move(tmp_path / "later.png", tmp_path / "nowhere.png")
    done = run_glit("retry", out, "--executor", "local", "--json")
    assert done.code == 0
    assert json.loads(done.output) == {
        "dataset": str(out),
        "counts": {
            "ingested": 4,
            "shipped": 4,
            "dropped": 0,
            "duplicates": 0,
            "drops": {},
            "without_pair": 0,
        },
    }


@pytest.mark.slow
def test_a_setting_holds_for_what_is_tried_again_and_is_told(scenes, tmp_path, run_glit):
    """A picture too large for one setting is let in by another, with the bytes of a build that had
    let it in at once."""
    images = tmp_path / "images"
    images.mkdir()
    for number in range(3):
        shutil.copy(scenes / "images" / f"{number:06d}.png", images)
    Image.open(images / "000001.png").resize((300, 300)).save(images / "000001.png")
    common = ["-r", "mini", "--executor", "local", "--captions", scenes / "captions.jsonl"]
    limit = ["--set", "ingest.max_pixels=70000"]
    out, at_once = tmp_path / "out", tmp_path / "at-once"
    assert "1 ingest/too_large" in run_glit("build", images, "-o", out, *common, *limit).output
    words = ["--executor", "local", "--set", "ingest.max_pixels=100000"]
    assert run_glit("retry", out, "--reason", "too_large", *words).code == 0
    assert run_glit("build", images, "-o", at_once, *common).code == 0
    assert data_bytes(out) == data_bytes(at_once)
    told = [{"settings": {"ingest": {"max_pixels": 100000}}, "stage": None, "reason": "too_large"}]
    assert json.loads((out / "manifest.json").read_text())["retries"] == told
    assert run_glit("verify", out).code == 0
    (out / "manifest.json").unlink()
    assert run_glit("build", images, "-o", out, *common, *limit).code == 0
    assert json.loads((out / "manifest.json").read_text())["retries"] == told
    for word, message in (
        ("pair.rule=argmax", "a retry changes only caption, ingest, propose"),
        ("propose.backend=sam", "another model"),
    ):
        done = run_glit("retry", out, "--executor", "local", "--set", word)
        assert done.code == 2 and message in done.errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--stage", "propse"], "--stage 'propse': want one of ingest, rights,"),
        (["--reason", "bad"], "--reason 'bad': want one of "),
    ],
)
def test_names_that_do_not_exist(built, run_glit, words, message):
    done = run_glit("retry", built, "--executor", "local", *words)
    assert done.code == 2 and done.errors.startswith(f"glit: {message}")


def test_after_clean_there_is_nothing_to_retry(built_copy, run_glit):
    shutil.rmtree(built_copy / "work")
    done = run_glit("retry", built_copy, "--executor", "local")
    assert done.code == 2
    assert done.errors == (
        f"glit: {built_copy}: its work folder is gone (glit clean); build it anew instead\n"
    )


ANOTHER = "was made by another version of glit; run glit build again"


@pytest.mark.parametrize("command", [["retry", "--executor", "local"], ["status"]], ids="/".join)
@pytest.mark.parametrize("key", ["num_chunks", "recipe", "folders", "captions"])
def test_a_state_that_lacks_what_this_glit_notes(built_copy, run_glit, command, key):
    edit_state(built_copy / "work", lambda state: state.pop(key))
    done = run_glit(command[0], built_copy, *command[1:])
    assert done.code == 2 and done.errors.count("\n") == 1
    assert done.errors.startswith(f"glit: {built_copy}/work/state.json: {key!r}: is missing; run")


@pytest.mark.parametrize("command", [["retry", "--executor", "local"], ["status"]], ids="/".join)
def test_a_state_that_is_damaged(built_copy, run_glit, command):
    (built_copy / "work" / "state.json").write_text("{")
    done = run_glit(command[0], built_copy, *command[1:])
    assert done.code == 2 and done.errors.count("\n") == 1
    assert done.errors.startswith(f"glit: {built_copy}/work/state.json: not valid JSON (")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state["folders"].update(match=state["folders"].pop("score")), ANOTHER),
        (lambda state: state["recipe"]["score"].update(oldest=1), ANOTHER),
        (
            lambda state: state["folders"].update(score="score-0123456789ab"),
            "models, prompt or glit changed since the build (stage score); run glit build again",
        ),
        (
            lambda state: state["recipe"]["propose"].update(max_regions=5),
            "models, prompt or glit changed since the build (stage propose); run glit build",
        ),
    ],
)
def test_work_of_another_version_or_recipe_is_not_retried(built_copy, run_glit, change, message):
    edit_state(built_copy / "work", change)
    done = run_glit("retry", built_copy, "--executor", "local")
    assert done.code == 2 and done.errors.count("\n") == 1
    assert done.errors.startswith(f"glit: {built_copy}/work: {message}")


def test_a_listing_that_is_gone(built_copy, run_glit):
    (built_copy / "work" / "listing.parquet").unlink()
    done = run_glit("retry", built_copy, "--executor", "local")
    assert done.code == 2
    assert done.errors == (
        f"glit: {built_copy}/work: its listing is gone; run glit build again, then retry\n"
    )


@pytest.mark.parametrize("damage", [7, [3], [{"told": 1, "folders": 2}]])
def test_notes_of_earlier_retries_that_are_damaged(built_copy, run_glit, damage):
    edit_state(built_copy / "work", lambda state: state.update(retries=damage))
    done = run_glit("retry", built_copy, "--executor", "local")
    assert done.code == 2 and done.errors.count("\n") == 1
    assert done.errors.startswith(f"glit: {built_copy}/work/state.json: 'retries': ")
    assert done.output == ""
