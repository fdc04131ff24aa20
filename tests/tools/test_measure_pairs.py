"""Figures of pairs by hand, and the whole measurement on a few scenes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scored import regions, scored, sentences

from glit.dataset.reader import Dataset
from glit.errors import InputError
from glit.rules.calibration import read_calibration
from glit.rules.metrics import average_precision, calibration_error, removed_at
from glit.rules.rules import Argmax
from tools.measure.judged_pairs import Judged, calibrated, judged, measure


def test_average_precision_by_hand():
    right = np.array([True, False, True, False])
    assert average_precision(np.array([4.0, 3.0, 2.0, 1.0]), right) == pytest.approx(
        (1 + 2 / 3) / 2
    )
    assert average_precision(np.zeros(4), right) == pytest.approx((1 / 3 + 2 / 4) / 2)
    assert average_precision(np.zeros(2), np.zeros(2, dtype=bool)) == 0


def test_removed_by_hand():
    ranks = np.array([5.0, 4.0, 3.0, 2.0, 1.0])
    right = np.array([True, True, False, True, False])
    assert removed_at(ranks, right, kept=1.0) == 0.5
    assert removed_at(ranks, right, kept=0.6) == 1.0


def test_calibration_error_by_hand():
    """Two bins: 0.9 said and 1.0 true for three, 0.1 said and 0.5 true for two."""
    said = np.array([0.9, 0.9, 0.9, 0.1, 0.1])
    right = np.array([True, True, True, True, False])
    assert calibration_error(said, right) == pytest.approx(3 / 5 * 0.1 + 2 / 5 * 0.4)


def made_up(seed: int) -> list[Judged]:
    """Four sentences a sample; the first two have a region of their own."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(40):
        right = np.zeros((4, 3), dtype=bool)
        right[0, 0] = right[1, 1] = True
        similarity = rng.normal(0.2, 0.1, (4, 3)) + 0.3 * right + [[0], [0], [0.6], [0.6]]
        scores = scored(np.clip(similarity, -1, 1))
        ambient = np.array([False, False, True, False])
        kinds = regions("yolos", "yolos", "quadrant")
        found.append(
            Judged(
                scores=scores,
                sentences=sentences(*[None] * 4),
                regions=kinds,
                right=right,
                ambient=ambient,
            )
        )
    return found


def test_a_calibration_mends_what_argmax_ranks_first():
    samples = made_up(1)
    plain = measure(samples, Argmax(), None)
    made = calibrated(made_up(2), Argmax(), table={"rule": "argmax"}, scores={})
    better = measure(samples, Argmax(), made)
    assert plain["best_right"] == 0 and plain["calibration_error"] is None
    assert better["best_right"] > 0.9
    assert better["average_precision"] > plain["average_precision"] + 0.3
    assert [better[key] for key in ("ambient", "right")] == [
        plain[key] for key in ("ambient", "right")
    ]
    assert better["ambient"] == 0.25
    assert made.fitted_on["pairs"] == 160


def test_scenes_of_other_captions_are_refused(built, scenes):
    assert len(list(judged(Dataset(built), scenes / "ground_truth.parquet"))) == 24
    with pytest.raises(InputError, match="not the ground truth of scenes"):
        list(judged(Dataset(built), scenes / "captions.jsonl"))


@pytest.mark.slow
def test_the_whole_measurement(tmp_path, run_tool):
    out = tmp_path / "pairs"
    code, said, errors = run_tool("pairs", "-o", out, "--scenes", "6", "--seeds", "1")
    assert code == 0, errors
    assert "| recommended | all levels |" in said
    report = json.loads((out / "pairs.json").read_text())
    measured = {(each["rule"], each["level"]): each["figures"] for each in report["measured"]}
    assert measured["recommended", "hard"]["right"] > measured["argmax", "hard"]["right"]
    assert all(0 <= each["best_right"] <= 1 for each in measured.values())
    assert read_calibration(out / "calibration.json").rule["rule"] == "centred"
    assert measured["grounded-mini", "hard"]["average_precision"] > 0.9
    grounded = read_calibration(out / "calibration-grounded.json")
    assert "agreement" in grounded.pair.evidence and "grounder" in grounded.scores
