"""Probabilities of pairs: by hand, fitted, kept, and refused where they do not belong."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scored import regions, scored

from glit.errors import RecipeError
from glit.rules.argmax import Argmax
from glit.rules.calibration import Calibration, evidence, fit, read_calibration
from glit.rules.pairing import Pairing

MATCHER = {"name": "mini-matcher", "revision": "local"}


def made(**changes) -> Calibration:
    values = {
        "rule": {"rule": "argmax"}, "matcher": MATCHER, "mean": (0.5, 0.0, 0.0, 0.0),
        "scale": (0.1, 1.0, 1.0, 1.0), "weight": (1.0, 0.0, 0.0, 0.0), "bias": 0.0,
    }  # fmt: skip
    return Calibration(**values | changes)


def test_evidence_by_hand():
    value = np.array([[0.2, 0.7], [0.3, 0.1]])
    found = evidence(value, regions("quadrant", "yolos"))
    np.testing.assert_allclose(found, [[0.7, 1, 0.5, 0.6], [0.3, 0, 0.2, 0.1]])


def test_evidence_of_one_sentence_and_one_region_has_no_leads():
    np.testing.assert_allclose(evidence(np.array([[0.4]]), regions("yolos")), [[0.4, 1, 0, 0]])


def test_probabilities_rank_and_take_regions_away():
    scores = scored([[0.5, 0.1], [0.9, 0.1], [0.2, 0.1]])
    plain = Pairing(rule=Argmax(), calibration=made())
    found = plain(scores, regions("yolos", "yolos"))
    logistic = [1 / (1 + np.exp(-x)) for x in (4.0, 0.0, -3.0)]
    assert [p.sentence for p in found] == [1, 0, 2]
    np.testing.assert_allclose([p.probability for p in found], logistic, atol=6e-5)
    assert not any(p.global_wins for p in found)
    strict = Pairing(rule=Argmax(), calibration=made(), min_probability=0.4)
    assert [p.global_wins for p in strict(scores, regions("yolos", "yolos"))] == [
        False, False, True,
    ]  # fmt: skip


def test_a_fit_finds_the_odds_it_was_drawn_from():
    rng = np.random.default_rng(3)
    found = rng.normal(size=(20_000, 4)) * [0.2, 1, 1, 1] + [0.5, 0, 0, 0]
    odds = 4 * (found[:, 0] - 0.5) / 0.2 * 0.5 + 0.7 * found[:, 1] - 0.3
    right = rng.random(len(found)) < 1 / (1 + np.exp(-odds))
    mean, scale, weight, bias = fit(found, right)
    made_of = np.array(weight) / scale
    away = np.abs(made_of - [10.0, 0.7, 0.0, 0.0])
    assert (away < [0.5, 0.06, 0.06, 0.06]).all()
    assert abs(bias - made_of @ mean + 5.3) < 0.3


@pytest.mark.parametrize(
    ("right", "what"),
    [([True] * 3, "right ones only"), ([False] * 3, "wrong ones"), ([], "no pai")],
)
def test_a_fit_wants_both_classes(right, what):
    with pytest.raises(RecipeError, match=f"wants right and wrong pairs, found {what}"):
        fit(np.zeros((len(right), 4)), np.array(right, dtype=bool))


def test_a_file_and_back(tmp_path):
    (tmp_path / "c.json").write_text(json.dumps(made().as_dict()))
    assert read_calibration(tmp_path / "c.json").as_dict() == made().as_dict()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "x"}, "no calibration of this glit"),
        ({"weight": [1.0]}, "want 4 finite numbers"),
        ({"bias": float("nan")}, "want 4 finite numbers"),
        ({"scale": [0.0, 1, 1, 1]}, "scales above 0"),
        ({"depth": 3}, "not a calibration"),
    ],
)
def test_a_damaged_file(tmp_path, change, message):
    (tmp_path / "c.json").write_text(json.dumps(made().as_dict() | change))
    with pytest.raises(RecipeError, match=message):
        read_calibration(tmp_path / "c.json")


def test_no_file(tmp_path):
    with pytest.raises(RecipeError, match="cannot be read"):
        read_calibration(tmp_path / "c.json")
