"""The recommended recipe, from scenes to a training on its pairs."""

from __future__ import annotations

import json

import pytest
from building import plan_of

import glit
from glit.errors import RecipeError
from glit.pipeline.planning.recipe import load_recipe


@pytest.fixture(scope="module")
def dataset(scenes, tmp_path_factory):
    out = tmp_path_factory.mktemp("glit-mini") / "dataset"
    return glit.build(
        scenes / "images", out, recipe="glit-mini", captions=scenes / "captions.jsonl",
        executor="local", quiet=True,
    )  # fmt: skip


def test_every_pair_has_a_probability_and_the_improbable_no_region(dataset):
    pairs = [pair for row in dataset for pair in row.pairs]
    assert all(pair.probability is not None for pair in pairs)
    assert {pair.global_wins for pair in pairs} == {True, False}
    assert all(pair.global_wins == (pair.probability < 0.5) for pair in pairs)
    assert glit.verify(dataset.path) == []
    assert dataset.manifest.calibration["rule"]["rule"] == "centred"
    assert all(row.phrase_similarity.shape == row.similarity.shape for row in dataset)


def test_sentences_about_objects_come_first(dataset, scenes):
    words = ("circle", "square", "triangle", "star", "cross", "ring", "crescent", "heart",
             "hourglass", "arch")  # fmt: skip
    best = [row.sentences[row.pairs[0].sentence].text for row in dataset]
    assert sum(any(word in text for word in words) for text in best) >= 23


def test_a_tampered_probability_is_a_breach(dataset, tmp_path):
    again = glit.pair(dataset.path, tmp_path / "again")
    path = tmp_path / "again" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["calibration"]["pair"]["bias"] += 1
    path.write_text(json.dumps(manifest))
    assert any("the rule gives" in line for line in glit.verify(again.path))


def test_it_trains_on_drawn_pairs(dataset, tmp_path):
    settings = ["train.epochs=1", "train.batch_size=8", "train.pairs=sample", "train.num_workers=0"]
    run = glit.train(dataset.path, tmp_path / "run", recipe="mini", settings=settings)
    assert run.step == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["pair.detector_bonus=2"], r"'mini-scenes' is of .*detector_bonus = 4.0.*, not of"),
        (["score.model=mini-captioner"], "mini-captioner"),
        (["pair.calibration=mini-scene"], "did you mean 'mini-scenes'"),
        (["pair.calibration="], "min_probability: wants pair.calibration"),
        (["score.phrases=false"], "phrase_weight: wants a build with score.phrases"),
        (["pair.min_probability=1.5"], "min_probability: found 1.5"),
    ],
)
def test_what_does_not_fit_together_is_refused_in_the_plan(changes, message):
    with pytest.raises(Exception, match=message) as caught:
        plan_of(load_recipe("glit-mini", overrides=changes))
    assert isinstance(caught.value, glit.GlitError)


def test_a_calibration_of_another_matcher_is_refused_by_name(tmp_path):
    from glit.recipes.resources import builtin_calibrations

    values = json.loads(builtin_calibrations()["mini-scenes"].read_text())
    values["scores"]["name"] = "clip-vit-b-16"
    (tmp_path / "other.json").write_text(json.dumps(values))
    recipe = load_recipe("glit-mini", overrides=[f"pair.calibration={tmp_path}/other.json"])
    with pytest.raises(RecipeError, match="for scores of the matcher .*'clip-vit-b-16'.*not for"):
        plan_of(recipe)


def test_a_rule_of_another_version_pairs_anew(monkeypatch):
    from glit.rules.rules import Centred

    recipe = load_recipe("mini", overrides=["pair.rule=centred"])
    before = plan_of(recipe).fingerprints
    monkeypatch.setattr(Centred, "version", 2, raising=False)
    after = plan_of(recipe).fingerprints
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"pair", "pack"}


def test_a_sample_whose_every_sentence_has_no_region_is_kept_and_counted(dataset, tmp_path):
    strict = glit.pair(dataset.path, tmp_path / "strict", settings=["pair.min_probability=0.9999"])
    lacking = [row for row in strict.rows(images=False) if all(p.global_wins for p in row.pairs)]
    assert len(strict) == len(dataset) and lacking
    assert strict.manifest.counts.without_pair == len(lacking)
    assert glit.verify(strict.path) == []
    path = tmp_path / "strict" / "manifest.json"
    path.write_text(path.read_text().replace('"without_pair": ', '"without_pair": 9'))
    assert any("without a pair" in line for line in glit.verify(strict.path))
