"""Logistic regression: what it was drawn from, what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from glit.errors import RecipeError
from glit.rules.logistic import Logistic, fit

NAMES = ("a", "b", "c", "d")


def test_a_fit_finds_the_odds_it_was_drawn_from():
    rng = np.random.default_rng(3)
    found = rng.normal(size=(20_000, 4)) * [0.2, 1, 1, 1] + [0.5, 0, 0, 0]
    odds = 4 * (found[:, 0] - 0.5) / 0.2 * 0.5 + 0.7 * found[:, 1] - 0.3
    right = rng.random(len(found)) < 1 / (1 + np.exp(-odds))
    made = fit(NAMES, found, right)
    slopes = np.array(made.weight) / made.scale
    away = np.abs(slopes - [10.0, 0.7, 0.0, 0.0])
    assert (away < [0.5, 0.06, 0.06, 0.06]).all()
    assert abs(made.bias - slopes @ made.mean + 5.3) < 0.3
    said = made(dict(zip(NAMES, found.T, strict=True)))
    assert abs(said.mean() - right.mean()) < 0.01


@pytest.mark.parametrize(
    ("right", "what"),
    [([True] * 3, "right ones only"), ([False] * 3, "wrong ones"), ([], "no pai")],
)
def test_a_fit_wants_both_classes(right, what):
    with pytest.raises(RecipeError, match=f"wants right and wrong pairs, found {what}"):
        fit(NAMES, np.zeros((len(right), 4)), np.array(right, dtype=bool))


def test_a_fit_wants_finite_numbers():
    with pytest.raises(RecipeError, match="missing or not finite"):
        fit(("a",), np.array([[0.1], [np.nan]]), np.array([True, False]))


def test_evidence_that_is_not_known_gives_no_probability():
    made = Logistic(evidence=("a",), mean=(0.0,), scale=(1.0,), weight=(1.0,), bias=0.0)
    said = made({"a": np.array([0.0, np.nan]), "b": np.array([1.0, 1.0])})
    assert said[0] == 0.5 and np.isnan(said[1])
    with pytest.raises(RecipeError, match="hold no a"):
        made({"b": np.array([1.0])})
