"""What a build tells other programs: lines of JSON, metrics, and when it stops by itself."""

from __future__ import annotations

import json
import re
import socket
import urllib.request
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from building import captions_only, data_bytes, noise, tiny
from chat_server import Server, ok
from prometheus_client.parser import text_string_to_metric_families

import glit
from glit.errors import StoppedError, UserError
from glit.pipeline.executors.protocols import Heartbeat
from glit.runtime import progress
from glit.runtime.listeners import json_lines, prometheus
from glit.runtime.progress import null_progress


@pytest.fixture
def photographs(tmp_path):
    """Twelve images, one damaged, and three without a caption."""
    folder = noise(tmp_path / "photographs", 12)
    (folder / "0.png").write_bytes(b"no picture")
    lines = [{"path": f"{n}.png", "caption": "A ball. A red box."} for n in range(9)]
    (tmp_path / "captions.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder


words = partial(captions_only, chunk_size=4)


def documented():
    """Fields by event, as docs/scale.md has them in a table."""
    page = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()
    _, _, table = page.partition("| event | fields |\n")
    rows = [row.split("|")[1:3] for row in table.partition("\n\n")[0].splitlines()[1:]]
    words = [[re.findall("`(.*?)`", cell) for cell in row] for row in rows]
    return {event: {*fields} for events, fields in words for event in events}


@pytest.mark.parametrize("executor", ["local", pytest.param("ray", marks=pytest.mark.engine)])
def test_every_stage_ends_with_its_figures(photographs, tmp_path, run_glit, executor):
    log = tmp_path / "log.jsonl"
    line = words(photographs, tmp_path / "out", "--executor", executor, "--log-json", log)
    assert run_glit(*line).code == 0
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert all(event["time"].endswith("Z") for event in events)
    fields = documented()
    assert all(event.keys() - {"time", "event"} == fields[event["event"]] for event in events)
    last = {event["stage"]: event for event in events if event["event"] == "progress"}
    assert last["ingest"]["done"] == last["ingest"]["total"] == 12
    assert last["ingest"]["drops"] == {"not_an_image": 1} and last["ingest"]["dropped"] == 1
    assert last["caption"]["drops"] == {"no_caption": 3}
    assert last["pack"]["rate_per_s"] > 0 and last["pack"]["units_lost"] == 0
    assert events[-1] == {"time": events[-1]["time"], "event": "end", "error": None}
    status = json.loads(run_glit("status", tmp_path / "out", "--json").output)
    assert all(stage["rate_per_s"] > 0 for stage in status["stages"])


def test_a_failure_is_the_last_line_and_a_log_goes_on(photographs, tmp_path, run_glit):
    log = tmp_path / "log.jsonl"
    line = words(photographs, tmp_path / "out", "--executor", "local", "--log-json", log)
    assert run_glit(*line, "--max-drops", "5%").code == 1
    before = log.read_text()
    assert "were dropped" in json.loads(before.splitlines()[-1])["error"]
    assert run_glit(*line).code == 0
    assert log.read_text().startswith(before)


def metrics(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return answer.read().decode()


def test_requests_that_a_busy_server_lets_repeat_are_counted(photographs, tmp_path, run_glit):
    log = tmp_path / "log.jsonl"
    busy = (503, {"retry-after": "0"}, {})
    with Server() as server:
        server.answers = [busy, busy, ok("A plain wall."), busy]
        keys = ["caption.backend=endpoint", "caption.model=m", f"caption.endpoint={server.url}",
                "caption.batch_size=1", *tiny()]  # fmt: skip
        line = ["build", photographs, "-o", tmp_path / "out", "-r", "mini", "--executor", "local"]
        sets = [word for key in keys for word in ("--set", key)]
        assert run_glit(*line, *sets, "--log-json", log).code == 0
    events = [json.loads(line) for line in log.read_text().splitlines()]
    last = {event["stage"]: event for event in events if event["event"] == "progress"}
    assert last["caption"]["requests_repeated"] == 3
    assert {each["requests_repeated"] for name, each in last.items() if name != "caption"} == {0}


def test_prometheus_reads_the_same_figures():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shown = null_progress()
    shown._listeners = [prometheus(str(port))]
    with shown:
        shown.begin("caption", total=8, done=2)
        assert re.search(r'glit_seconds_left{stage="caption"} NaN', metrics(port))
        shown.lost()
        shown.moved(SimpleNamespace(index=0), Heartbeat(rows=1, drops=0, gpu_memory=(3, 4)))
        shown.finished(SimpleNamespace(index=1), 6, {"refusal": 1}, requests_repeated=3)
    families = text_string_to_metric_families(metrics(port))
    samples = [s for f in families for s in f.samples if "created" not in s.name]
    found = {s.name: s.value for s in samples}
    shown_as = {name.removeprefix("glit_") for name in found}
    assert shown_as == documented()["progress"] - {"stage"} | {"runs_ended_total"}
    memory = {s.labels["kind"]: s.value for s in samples if s.name == "glit_gpu_bytes"}
    assert memory == {"used": 3, "total": 4}
    assert (found["glit_done"], found["glit_total"], found["glit_dropped"]) == (8, 8, 1)
    assert (found["glit_units_lost"], found["glit_requests_repeated"]) == (1, 3)
    assert found["glit_runs_ended_total"] == 1
    with pytest.raises(UserError, match="--metrics .*want HOST:PORT, or a port"):
        prometheus(str(port))  # taken


@pytest.mark.parametrize("address", ["here", "127.0.0.1:", "1.2.3.4.5:80", "99999999", "0", ""])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(UserError, match="want HOST:PORT, or a port"):
        prometheus(address)


def test_a_log_that_cannot_be_written_is_named_first(photographs, tmp_path, run_glit):
    found = run_glit(*words(photographs, tmp_path / "out", "--log-json", tmp_path / "no" / "log"))
    assert found.code == 2 and "--log-json" in found.errors and found.errors.count("\n") == 1
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match="Is a directory"):
        json_lines(str(tmp_path))


def test_events_that_cannot_be_written_are_counted_and_said_once(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    tell = json_lines(str(folder / "log.jsonl"))
    tell({"event": "one"})
    folder.rename(tmp_path / "away")
    with pytest.warns(UserWarning, match="--log-json .*events are lost until") as said:
        tell({"event": "two"})
        tell({"event": "three"})
    assert len(said) == 1
    (tmp_path / "away").rename(folder)
    tell({"event": "four"})
    tell({"event": "five"})
    events = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [each["event"] for each in events] == ["one", "four", "five"]
    assert [each.get("events_lost") for each in events] == [None, 2, None]


def test_a_build_stops_after_its_hours_and_goes_on(photographs, tmp_path, monkeypatch):
    out, whole = tmp_path / "out", tmp_path / "whole"
    build = {"recipe": "captions-only", "captions": tmp_path / "captions.jsonl",
             "executor": "local", "quiet": True, "settings": ["ingest.chunk_size=4"]}  # fmt: skip
    clock = progress.time.monotonic
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock() * 3600)  # a second is an hour
    with pytest.raises(StoppedError, match=r"by --max-hours.*: glit build .* --max-hours 1e-05"):
        glit.build(photographs, out, max_hours=1e-5, **build)
    assert not (out / "manifest.json").exists()
    first = glit.status(out)["stages"][0]
    assert first["chunks_done"] == 1
    glit.build(photographs, out, **build)
    glit.build(photographs, whole, **build)
    assert data_bytes(out) == data_bytes(whole)


@pytest.mark.parametrize("hours", [0, -1.0, float("nan")])
def test_what_is_no_time_is_refused(photographs, tmp_path, hours):
    with pytest.raises(UserError, match="want hours above 0"):
        glit.build(photographs, tmp_path / "out", recipe="captions-only", max_hours=hours)
