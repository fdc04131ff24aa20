"""A few odd inputs for every reader; a hundred thousand are in docs/experiments.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.fuzz.hunt import case
from tools.fuzz.targets import targets

NAMES = (
    "images", "captions.jsonl", "imports: odvg", "imports: mdetr", "regions.jsonl", "region files", "verdicts",
    "captions.csv", "captions.parquet", "caption texts", "tars",
    "tables of images", "recipes", "lists", "masks", "tables of a build", "manifests", "data files", "locks", "calibrations",
    "strangers' datasets",
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
