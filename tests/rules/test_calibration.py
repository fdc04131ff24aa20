"""Probabilities of pairs and support of sentences: by hand, kept, refused where they do not fit."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from scored import regions, scored, sentences

from glit.errors import RecipeError
from glit.rules.calibration import Calibration, read_calibration
from glit.rules.logistic import Logistic
from glit.rules.pairing import Pairing
from glit.rules.rules import Argmax

SCORES = {"name": "mini-matcher", "revision": "local"}


def one(name: str, *, mean: float, scale: float) -> Logistic:
    return Logistic(evidence=(name,), mean=(mean,), scale=(scale,), weight=(1.0,), bias=0.0)


def made(**changes) -> Calibration:
    values = {"rule": {"rule": "argmax"}, "scores": SCORES, "pair": one("value", mean=0.5, scale=0.1)}  # fmt: skip
    return Calibration(**values | changes)


def logistic(*odds: float) -> list[float]:
    return [1 / (1 + np.exp(-x)) for x in odds]


def test_probabilities_rank_and_take_regions_away():
    scores = scored([[0.5, 0.1], [0.9, 0.1], [0.2, 0.1]])
    plain = Pairing(rule=Argmax(), calibration=made())
    told = sentences(None, None, None)
    found = plain(scores, regions("yolos", "yolos"), told)
    assert [p.sentence for p in found] == [1, 0, 2]
    np.testing.assert_allclose([p.probability for p in found], logistic(4, 0, -3), atol=6e-5)
    assert not any(p.global_wins for p in found)
    assert all(p.support is None for p in found)
    strict = Pairing(rule=Argmax(), calibration=made(), min_probability=0.4)
    found = strict(scores, regions("yolos", "yolos"), told)
    assert [p.global_wins for p in found] == [False, False, True]


def test_support_takes_regions_away_from_sentences_that_are_not_true():
    support = one("closest", mean=0.5, scale=0.1)
    pairing = Pairing(rule=Argmax(), calibration=made(support=support), min_support=0.4)
    scores = scored([[0.5, 0.1], [0.9, 0.1], [0.2, 0.1]], whole=[0.6, 0.0, 0.3])
    found = {
        p.sentence: p for p in pairing(scores, regions("yolos", "yolos"), sentences(*[None] * 3))
    }
    np.testing.assert_allclose([found[k].support for k in range(3)], logistic(1, 4, -2), atol=6e-5)
    assert [found[k].global_wins for k in range(3)] == [False, False, True]


def test_support_is_not_known_where_the_captioner_did_not_say():
    support = one("mean_logprob", mean=-1.0, scale=1.0)
    pairing = Pairing(rule=Argmax(), calibration=made(support=support), min_support=0.4)
    found = pairing(scored([[0.5], [0.4]]), regions("yolos"), sentences(None, -3.0))
    assert {p.sentence: p.support for p in found}[0] is None
    assert {p.sentence: p.global_wins for p in found} == {0: False, 1: True}


def test_agreement_is_evidence_where_a_detector_was_asked():
    pair = one("agreement", mean=0.5, scale=0.1)
    pairing = Pairing(rule=Argmax(), calibration=made(pair=pair))
    scores = scored([[0.9, 0.1], [0.9, 0.1]])
    asked = dataclasses.replace(scores, agreement=np.array([[0.7, 0.0], [0.3, 0.9]], np.float32))
    found = pairing(asked, regions("yolos", "yolos"), sentences(None, None))
    assert [p.sentence for p in found] == [0, 1]
    np.testing.assert_allclose([p.probability for p in found], logistic(2, -2), atol=6e-5)
    with pytest.raises(RecipeError, match="the scores hold no agreement"):
        pairing(scores, regions("yolos", "yolos"), sentences(None, None))


@pytest.mark.parametrize("support", [None, one("closest", mean=0.1, scale=1.0)])
def test_a_file_and_back(tmp_path, support):
    (tmp_path / "c.json").write_text(json.dumps(made(support=support).as_dict()))
    assert read_calibration(tmp_path / "c.json") == made(support=support)


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("", {"format": "x"}, "no calibration of this glit"),
        ("pair", {"weight": [1.0, 2.0]}, "for each evidence"),
        ("pair", {"bias": float("nan")}, "wants a finite"),
        ("pair", {"scale": [0.0]}, "scale above 0"),
        ("pair", {"mean": None}, "not a calibration"),
        ("", {"depth": 3}, "not a calibration"),
    ],
)
def test_a_damaged_file(tmp_path, part, change, message):
    values = made().as_dict()
    values |= {part: values[part] | change} if part else change
    (tmp_path / "c.json").write_text(json.dumps(values))
    with pytest.raises(RecipeError, match=message):
        read_calibration(tmp_path / "c.json")


def test_no_file(tmp_path):
    with pytest.raises(RecipeError, match="cannot be read"):
        read_calibration(tmp_path / "c.json")
