"""When stages were at work: kept small, kept true, shown."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glit.cli.timeline import timeline_lines
from glit.pipeline.executors.protocols import BusyInterval, Resources
from glit.pipeline.work.timeline import (
    Timeline,
    TimelineWriter,
    rate_per_s,
    read_timelines,
    seconds_left,
)
from glit.storage.store import Store


def stretch(start_s, stop_s):
    return BusyInterval(worker="a", start_s=start_s, stop_s=stop_s)


@given(st.lists(st.tuples(st.floats(0, 5000), st.floats(0, 900)), min_size=1, max_size=20))
def test_no_second_is_lost_however_long_it_takes(times):
    line = Timeline(start_s=1000.0)
    for start, length in times:
        line.note("caption", "cuda", stretch(1000 + start, 1000 + start + length))
    found = line.stages["caption"].busy_s
    assert sum(found) == pytest.approx(sum(length for _, length in times), abs=1e-6)
    assert len(found) <= 512
    longest = max(start + length for start, length in times)
    assert longest <= line.seconds + 1e-6 <= max(longest + line.bin_s, 2 * line.bin_s) + 1e-6


def test_the_share_of_a_place_is_of_the_workers_that_had_it():
    line = Timeline(start_s=0.0, bin_s=1.0)
    line.note("caption", "cuda", stretch(0, 2), workers=2)
    line.note("caption", "cuda", stretch(1, 2), workers=2)
    line.note("propose", "cuda", stretch(3, 3.5), workers=1)
    line.note("split", "cpu", stretch(1, 2), workers=4)
    assert line.at_work(place="cuda") == [0.5, 1.0, 0.0, 0.5]
    assert line.at_work(stage="split") == [0.0, 0.25]


def test_what_died_with_a_worker_is_counted_and_shown():
    line = Timeline(start_s=0.0, bin_s=1.0)
    line.note("caption", "cuda", stretch(0, 60))
    assert not any("died" in text for text in timeline_lines(line))
    line.note("caption", "cuda", replace(stretch(60, 72), lost=True))
    assert (line.stages["caption"].lost_s, sum(line.stages["caption"].busy_s)) == (12, 72)
    assert any(text.endswith("12 s lost with workers that died") for text in timeline_lines(line))


def test_status_shows_it(built_copy, run_glit):
    done = run_glit("status", built_copy, "--timeline")
    assert done.code == 0
    lines = done.output.splitlines()
    assert any(line.startswith("caption  cpu ") and "of 1 worker" in line for line in lines)
    assert any(line.startswith("cpu: at work ") for line in lines)
    found = json.loads(run_glit("status", built_copy, "--timeline", "--json").output)
    (run,) = found["timeline"]
    assert run["stages"].keys() == {
        "ingest", "caption", "split", "propose", "score", "pair", "ledger", "pack",
    }  # fmt: skip
    assert "timeline" not in json.loads(run_glit("status", built_copy, "--json").output)


@pytest.mark.parametrize("damage", ["{", "3", '[{"start_s": 1}]'])
def test_nothing_depends_on_it(built_copy, run_glit, damage):
    (built_copy / "work" / "timeline.json").write_text(damage)
    assert read_timelines(Store(str(built_copy / "work"))) == []
    done = run_glit("status", built_copy, "--timeline")
    assert (done.code, "no timeline" in done.output) == (0, True)


def test_the_rest_of_a_build_is_as_long_as_its_slowest_place():
    first, second = Timeline(start_s=0.0, bin_s=1.0), Timeline(start_s=90.0, bin_s=1.0)
    first.note("caption", "cuda", stretch(0, 8), workers=2)  # 4 s
    first.note("propose", "cuda", stretch(8, 10), workers=1)  # 2 s
    second.note("caption", "cuda", stretch(90, 92), workers=1)  # 2 s
    for start in (90, 93, 96):
        second.note("ingest", "cpu", stretch(start, start + 3), workers=1)  # 9 s
    stages = [
        {"stage": name, "chunks_done": done, "chunks_total": 9}
        for name, done in (("ingest", 3), ("caption", 2), ("propose", 1), ("score", 0), ("pair", 0))
    ]
    # caption 6 s / 2 * 7, propose 2 s / 1 * 8; ingest 9 s / 3 * 6
    assert seconds_left([first, second], stages) == (37.0, ["score", "pair"])
    # of earlier runs, whose times are forgotten, chunks do not count either
    many = [{"stage": "ingest", "chunks_done": 300, "chunks_total": 306, "rows": 3000}]
    assert seconds_left([second], many) == (18.0, [])
    assert rate_per_s([second], many[0]) == 30 / 9
    done = [{"stage": "caption", "chunks_done": 9, "chunks_total": 9}]
    assert seconds_left([first], done) == (0.0, [])


def test_the_names_of_gpus_are_kept_once(tmp_path):
    task = SimpleNamespace(name="caption", needs=Resources(memory_bytes=1, place="cuda"))
    with TimelineWriter(Store(tmp_path), (4, 2)) as timeline:
        timeline.recorder(task, [1])(stretch(0, 1))
        for name in ("NVIDIA A10", "", "NVIDIA A10", "NVIDIA L4"):
            timeline.note_gpu(name)
    (run,) = read_timelines(Store(tmp_path))
    assert run.gpu_names == ["NVIDIA A10", "NVIDIA L4"]


@pytest.mark.parametrize("value", ["NaN", "1e999", '"x"', "null", "[1]"])
def test_a_timeline_that_somebody_changed_is_none(tmp_path, value):
    """`glit status` computes with it."""
    stage = f'{{"place": "cpu", "workers": 1, "busy_s": [{value}], "lost_s": 0.0, "units": 1}}'
    text = f'[{{"start_s": 0.0, "bin_s": 1.0, "stages": {{"score": {stage}}}}}]'
    (tmp_path / "timeline.json").write_text(text)
    assert read_timelines(Store(tmp_path)) == []
    (tmp_path / "timeline.json").write_text(text.replace(f"[{value}]", "[2]"))
    assert seconds_left(
        read_timelines(Store(tmp_path)),
        [{"stage": "score", "chunks_done": 1, "chunks_total": 4}],
    ) == (6.0, [])
