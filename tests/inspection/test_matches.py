"""Captions of another picture are found, and little is said where a model cannot tell."""

from __future__ import annotations

import json

import numpy as np
import pytest

from glit import api
from glit.inspection.scores import below_the_middle, own_scores, scores, wilson
from glit.scenes import write_scenes


def embeddings(number: int, *, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Captions and their pictures, unit vectors of 32 numbers."""
    rng = np.random.default_rng(7)
    pictures = rng.standard_normal((number, 32))
    texts = pictures + noise * rng.standard_normal((number, 32))
    texts, pictures = (e / np.linalg.norm(e, axis=1, keepdims=True) for e in (texts, pictures))
    return texts.astype(np.float32), pictures.astype(np.float32)


def test_swapped_captions_are_below_the_others():
    texts, pictures = embeddings(400, noise=0.5)
    clean = scores(own_scores(texts, pictures, texts, pictures), texts @ pictures.T)
    assert clean.recall > 0.98 and not (clean.own_N < clean.least).any()
    texts[[3, 70, 200, 201]] = texts[[70, 3, 201, 200]]
    found = scores(own_scores(texts, pictures, texts, pictures), texts @ pictures.T)
    assert np.flatnonzero(found.own_N < found.least).tolist() == [3, 70, 200, 201]


def test_a_model_that_cannot_tell_claims_nothing():
    texts, pictures = embeddings(400, noise=20.0)
    found = scores(own_scores(texts, pictures, texts, pictures), texts @ pictures.T)
    assert found.recall < 0.01 and not (found.own_N < found.least).any()


def test_the_middle_of_boxes_of_other_images():
    cosine = np.array([[0.5, 0.9, 0.9, 0.1], [0.9, 0.8, 0, 0], [0, 0, 0.1, 0.1], [1, 1, 1, 1]])
    names = np.array(["a", "a", "b", "c"])
    low = below_the_middle(cosine, names[:, None] != names)
    assert low.tolist() == [False, False, False, True]
    assert wilson(0, 50) == pytest.approx((0, 0.0713), abs=1e-4)


@pytest.fixture(scope="module")
def sixty(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sixty")
    write_scenes(folder, num=60, seed=11)
    return folder


def test_captions_of_two_scenes_are_swapped(sixty, run_glit, tmp_path):
    rows = [json.loads(line) for line in (sixty / "captions.jsonl").read_text().splitlines()]
    clean = api.audit(sixty / "captions.jsonl", images=sixty / "images", model="mini-matcher")
    assert clean.findings == () and "caption-of-another" in clean.clean
    rows[5]["caption"], rows[41]["caption"] = rows[41]["caption"], rows[5]["caption"]
    file = tmp_path / "captions.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    done = run_glit(
        "audit", file, "--images", sixty / "images", "--model", "mini-matcher", "--json"
    )
    [finding] = json.loads(done.output)["findings"]
    assert done.code == 0 and finding["code"] == "caption-of-another"
    assert [e["name"] for e in finding["examples"]] == [rows[5]["path"], rows[41]["path"]]
    assert finding["looked_at"] == 60


def test_what_is_too_little_is_said(built):
    skipped = dict(api.audit(built, model="mini-matcher").skipped)
    assert skipped["caption-of-another"] == "takes 50 pictures with captions, here are 24"
    assert dict(api.audit(built).skipped)["caption-of-another"].endswith("add --model NAME")


def test_pairs_of_a_dataset_have_an_estimate(built_by_mini):
    report = api.audit(built_by_mini, model="mini-matcher")
    [found] = [each for each in report.estimates if each.claim == "below the middle"]
    assert found.of == "pairs" and found.items > 100
    assert 0 <= found.at_least <= found.share <= found.at_most < 0.15
