"""The comparison with other packages: glit's ways do the work, and answers are judged by the truth."""

from __future__ import annotations

import json

import pytest

from glit.clip.random_clip import TINY
from glit.runtime.tables import markdown
from tools.measure import peers


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    """Small inputs, and a small model."""
    monkeypatch.setattr(peers, "_SCENES", 34)
    monkeypatch.setattr(peers, "_SCENE_PX", 128)
    monkeypatch.setattr(peers, "VIT_B_16", TINY)
    peers.make_inputs(tmp_path, None)
    return tmp_path


def test_glit_does_every_work_and_its_answers_are_right(inputs, tmp_path):
    for work in peers.WORKS:
        way = peers.WORKS[work][1][0]
        assert way.name == "glit"
        out = tmp_path / "out" / work
        out.mkdir(parents=True)
        answer = json.loads(json.dumps(way.prepare(inputs, out)()))
        told = peers.quality(inputs, work, answer, answer)
        if work == "messy":
            assert told.startswith("12 of 12 bad, 6 of 6 repeats found")
        else:
            assert told in ("100.0 % of captions as glit", "the same")


def test_what_others_answer_is_compared_with_truth_and_with_glit(inputs):
    truth = json.loads((inputs / "messy" / "truth.json").read_text())
    nothing = dict.fromkeys(truth, "")
    assert "0 of 12 bad, 0 of 6 repeats found; 0 of" in peers.quality(inputs, "messy", nothing, {})
    everything = dict.fromkeys(truth, "out")
    told = peers.quality(inputs, "messy", everything, {})
    assert told.startswith("12 of 12 bad, 6 of 6") and "16 of 16 good" in told
    assert peers.quality(inputs, "parquet", [1], [2]) == "differs"
    assert peers.quality(inputs, "sentences", [["a"], ["b"]], [["a"], ["c"]]).startswith("50.0 %")


def test_the_page_has_a_table_a_work():
    way = {"wall_s": 2.0, "cpu_s": 1.0, "wall_s_of_glit": 4.0, "cpu_s_of_glit": 2.0}
    row = {**way, "peak_mb": 9.0, "quality": "the same", "note": "repeats only"}
    report = {"machine": {"cpu": "A"}, "repeats": 3, "works": {"parquet": {"Daft": row}}}
    page = markdown(peers.page(report))
    assert "| Daft | 2.00 s (4.00 ×) | 1.00 s (2.00 ×) | 9 | the same | repeats only |" in page
