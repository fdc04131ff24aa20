"""A few odd inputs for every reader; a hundred thousand are in docs/experiments.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import tiny_clip

from tools.fuzz.grammars import Checkpoints
from tools.fuzz.hunt import case
from tools.fuzz.targets import Target, targets

NAMES = (
    "images", "damaged pixels", "captions.jsonl", "imports: odvg", "imports: mdetr", "imports: refcoco",
    "imports: visual-genome", "imports: coco", "regions.jsonl", "region files", "verdicts", "captions.csv", "captions.parquet", "caption texts", "tars",
    "tables of images", "recipes", "lists", "masks", "tables of a build", "manifests", "data files", "locks", "calibrations",
    "strangers' datasets", "recipes of keys", "statements",
)  # fmt: skip


@pytest.fixture(scope="module")
def known(built, scenes, tmp_path_factory):
    return targets(tmp_path_factory.mktemp("fuzz"), built, Path(scenes) / "captions.jsonl")


def test_these_are_all(known):
    assert tuple(known) == NAMES


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_odd_inputs_are_taken_or_refused(known, name):
    """Whatever a check raises is neither. Good inputs are taken, and most odd ones refused."""
    target = known[name]
    assert all("taken" in target.check(good) for good in target.corpus)
    said = [target.check(case(name, target, seed)) for seed in range(20)]
    assert any("taken" not in each for each in said) or name in ("caption texts", "lists")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("captions.parquet", 3), ("captions.parquet", 78), ("recipes", 369), ("manifests", 762),
        ("manifests", 1338),
    ],
)  # fmt: skip
def test_what_was_found_once(known, name, seed):
    known[name].check(case(name, known[name], seed))


@pytest.mark.slow
def test_a_checkpoint_with_a_key_changed_is_refused_or_followed(tmp_path):
    """Of its features transformers is the judge."""
    keys = Checkpoints(tiny_clip(), tmp_path)
    target = Target(corpus=keys.whole(), check=keys, make=keys.make)
    assert [keys(whole) for whole in keys.whole()] == ["taken", "taken"]
    said = [keys(case("checkpoints", target, seed)) for seed in range(30)]
    assert "taken" in said and "WeightsError" in said
