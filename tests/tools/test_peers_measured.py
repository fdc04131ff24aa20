"""The comparison with other packages: each way that is installed does its work."""

from __future__ import annotations

import importlib.util
import json

from glit.models.clip.random_clip import TINY
from glit.runtime.tables import markdown
from tools.measure import peers


def test_ways_that_are_installed_do_their_work_and_agree(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "SCENES", 34)
    monkeypatch.setattr(peers, "SCENE_PX", 128)
    monkeypatch.setattr(peers, "VIT_B_16", TINY)
    monkeypatch.setattr(peers, "SIDE", 32)
    peers.make_inputs(tmp_path)
    for name, work in peers.WORKS.items():
        answers = [
            json.loads(json.dumps(way.prepare(tmp_path)()))
            for way in work.ways
            if importlib.util.find_spec(way.package) and way.name != "open_clip"  # of its own size
        ]
        assert work.ways[0].name == "glit" and len(answers) > 1
        assert all(each == answers[0] for each in answers), name


def test_the_page_has_a_table_a_work():
    way = {"wall_s": 2.0, "cpu_s": 1.0, "wall_s_of_glit": 4.0, "cpu_s_of_glit": 2.0}
    row = {**way, "peak_mb": 9.0, "answer": "the same", "note": "in order"}
    report = {"machine": {"cpu": "A"}, "repeats": 3, "works": {"loader": {"datasets": row}}}
    page = markdown(peers.page(report))
    assert "| datasets | 2.00 s (4.00 ×) | 1.00 s (2.00 ×) | 9 | the same | in order |" in page
