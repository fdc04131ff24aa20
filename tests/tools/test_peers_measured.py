"""The comparison with other packages: glit's ways do the work, and answers are judged by the truth."""

from __future__ import annotations

import json

import pytest

from glit.clip.random_clip import TINY
from glit.runtime.tables import markdown
from tools.measure.peers import __main__ as peers
from tools.measure.peers import inputs as peers_inputs
from tools.measure.peers import masks, tables, training

SMALL = {
    **training.SHAPE,
    "embed_dim": 16,
    "vision_cfg": {
        "image_size": 32, "layers": 1, "width": 32, "patch_size": 8, "head_width": 16
    },
    "text_cfg": {**training.SHAPE["text_cfg"], "width": 32, "heads": 2, "layers": 1},
}  # fmt: skip
RIGHT = {
    "sentences": "100.0 % of captions as glit",
    "messy": "12 of 12 bad, 6 of 6 repeats found",
    "masks": "",
    "train-steps": "losses within 0e+00, gradients of step 1 within 0e+00",
    "train-epoch": "not compared",
}
"""How the judgement of an answer that is glit's own begins."""


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    """Small inputs, and small models."""
    monkeypatch.setattr(peers_inputs, "SCENES", 34)
    monkeypatch.setattr(peers_inputs, "SCENE_PX", 128)
    monkeypatch.setattr(peers_inputs, "VIT_B_16", TINY)
    monkeypatch.setattr(tables, "ROWS", 1300)
    monkeypatch.setattr(tables, "_FILE", 500)
    for name, few in (("_BATCH", 4), ("_STEPS", 1), ("_MANY", 8)):
        monkeypatch.setattr(training, name, few)
    monkeypatch.setitem(training._OPTIONS, "batch_size", 4)
    monkeypatch.setattr(training, "SHAPE", SMALL)
    monkeypatch.setattr(masks, "_FEW", 2)
    peers_inputs.make_inputs(tmp_path, None)
    return tmp_path


def test_glit_does_every_work_and_its_answers_are_right(inputs, tmp_path):
    for work, comparison in peers.WORKS.items():
        if comparison.needs:
            continue
        way = comparison.ways[0]
        assert way.name.split()[0] == "glit"
        if comparison is not peers.WORKS["clip"]:  # whose further inputs are for others
            peers.make_further(inputs, work)
        out = tmp_path / "out" / work
        out.mkdir(parents=True)
        answer = json.loads(json.dumps(comparison.read(way.prepare(inputs, out)())))
        told = comparison.judge(inputs, answer, answer)
        assert told.startswith(RIGHT.get(work, "the same")), work


def test_what_others_answer_is_compared_with_truth_and_with_glit(inputs):
    truth = json.loads((inputs / "messy" / "truth.json").read_text())
    judge = {name: comparison.judge for name, comparison in peers.WORKS.items()}
    nothing = dict.fromkeys(truth, "")
    assert "0 of 12 bad, 0 of 6 repeats found; 0 of" in judge["messy"](inputs, nothing, {})
    everything = dict.fromkeys(truth, "out")
    told = judge["messy"](inputs, everything, {})
    assert told.startswith("12 of 12 bad, 6 of 6") and "16 of 16 good" in told
    assert judge["parquet"](inputs, [1], [2]) == "differs"
    assert judge["sentences"](inputs, [["a"], ["b"]], [["a"], ["c"]]).startswith("50.0 %")
    told = judge["train-steps"](inputs, [[2.0, 1.02], [3.0]], [[2.0, 1.0], [4.0]])
    assert told == "losses within 2e-02, gradients of step 1 within 2e-01"
    boxes = [[[0, 0, 10, 10], [5, 5, 9, 9]]]
    told = judge["masks"](inputs, boxes, [[[0, 1, 10, 10], [5, 5, 9, 12]]])
    assert told == "1 of 2 boxes within a pixel of glit's 2"


def test_a_file_of_lines_is_the_same_whatever_its_order_and_white_space(tmp_path):
    (tmp_path / "a").write_text('[\n{"x": 1, "y": "é"},\n{"x": 2, "y": ""}\n]\n')
    (tmp_path / "b").write_text('{"x":2,"y":""}\n{"y":"é","x":1}\n')
    (tmp_path / "c").write_text('{"x":2,"y":""}\n{"y":"e","x":1}\n')
    one, same, other = (tables._lines(tmp_path / name) for name in "abc")
    assert one == same != other and one[0] == 2


def test_the_page_has_a_table_a_work():
    way = {"wall_s": 2.0, "cpu_s": 1.0, "wall_s_of_glit": 4.0, "cpu_s_of_glit": 2.0}
    row = {**way, "peak_mb": 9.0, "quality": "the same", "note": "repeats only"}
    report = {"machine": {"cpu": "A"}, "repeats": 3, "works": {"parquet": {"Daft": row}}}
    page = markdown(peers.page(report))
    assert "| Daft | 2.00 s (4.00 ×) | 1.00 s (2.00 ×) | 9 | the same | repeats only |" in page
