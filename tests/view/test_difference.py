"""``glit view A B``: what differs between two datasets."""

from __future__ import annotations

import json

from building import run_build

import glit


def test_a_dataset_and_itself(built, run_glit):
    found = glit.diff(built, built)
    assert found["same"] and found["settings"] == {}
    assert found["images"] == {"only_a": 0, "only_b": 0, "both": 24}
    assert found["sentences"]["same"] > 0 and found["sentences"]["other"] == 0
    assert run_glit("view", built, built).code == 0


def test_other_images_settings_and_regions(built, tmp_path, run_glit):
    glit.select(built, tmp_path / "some", sample=10)
    glit.pair(tmp_path / "some", tmp_path / "other", settings=["pair.rule=lism"])
    found = glit.diff(built, tmp_path / "other")
    assert not found["same"]
    assert found["images"] == {"only_a": 14, "only_b": 0, "both": 10} and found["compared"] == 10
    rules = glit.open_dataset(built).manifest.recipe.tables["pair"]["rule"], "lism"
    assert found["settings"]["pair.rule"] == list(rules)
    assert found["sentences"]["only_a"] > 0  # LISM leaves sentences to the whole image

    done = run_glit("view", built, tmp_path / "other")
    assert done.code == 1 and f"pair.rule: {rules[0]} | lism\n" in done.output
    assert "10 images in both, 14 in the first alone, 0 in the second alone" in done.output
    assert json.loads(run_glit("view", built, tmp_path / "other", "--json").output) == found
    refused = run_glit("view", built, "--json")
    assert refused.code == 2 and "glit view A B --json" in refused.errors


def test_a_stage_that_only_one_has(scenes, tmp_path, run_glit):
    for name, on in (("plain", ()), ("measured", ("quality.enabled=true",))):
        run_build(
            scenes / "images", tmp_path / name, captions=scenes / "captions.jsonl", overrides=on,
            limit=3,
        )  # fmt: skip
    found = glit.diff(tmp_path / "plain", tmp_path / "measured")
    assert list(found["settings"]) == ["quality"] and found["settings"]["quality"][0] is None
    assert (
        "quality: only in the second\n"
        in run_glit("view", tmp_path / "plain", tmp_path / "measured").output
    )


def test_nothing_in_common(built, tmp_path):
    first = glit.open_dataset(built)[0].sample_id
    glit.select(built, tmp_path / "a", where=f"sample_id = '{first}'")
    glit.select(built, tmp_path / "b", where=f"sample_id != '{first}'")
    found = glit.diff(tmp_path / "a", tmp_path / "b")
    assert found["images"] == {"only_a": 1, "only_b": 23, "both": 0} and not found["same"]
    assert sum(found["sentences"].values()) == 0
