"""The numbers that calibrations weigh, by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
from scored import regions, scored, sentences

from glit.rules.evidence import AGREEMENT, PAIR_EVIDENCE, pair_evidence, support_evidence


def columns(found, names) -> np.ndarray:
    return np.column_stack([found[name] for name in names])


def test_evidence_of_pairs():
    value = np.array([[0.2, 0.7], [0.3, 0.1]])
    found = pair_evidence(value, scored(value), regions("quadrant", "yolos"))
    assert AGREEMENT not in found
    np.testing.assert_allclose(
        columns(found, PAIR_EVIDENCE), [[0.7, 1, 0.5, 0.6], [0.3, 0, 0.2, 0.1]]
    )


def test_agreement_is_that_of_the_chosen_region():
    value = np.array([[0.2, 0.7], [0.3, 0.1]])
    asked = dataclasses.replace(scored(value), agreement=np.array([[1, 0.5], [0.25, 1]]))
    found = pair_evidence(value, asked, regions("quadrant", "yolos"))
    assert found[AGREEMENT].tolist() == [0.5, 0.25]


def test_one_sentence_and_one_region_have_no_leads():
    found = pair_evidence(np.array([[0.4]]), scored([[0.4]]), regions("yolos"))
    np.testing.assert_allclose(columns(found, PAIR_EVIDENCE), [[0.4, 1, 0, 0]])


def test_evidence_of_sentences():
    scores = scored([[0.2, 0.7], [0.3, 0.1]], whole=[0.5, 0.4])
    found = support_evidence(scores, sentences(None, -0.5))
    np.testing.assert_allclose(found["closest"], [0.7, 0.4], rtol=1e-6)
    np.testing.assert_allclose(found["image"], [0.5, 0.4], rtol=1e-6)
    np.testing.assert_allclose(found["mean_logprob"], [np.nan, -0.5])
    np.testing.assert_allclose(found["min_logprob"], [np.nan, -0.5])
