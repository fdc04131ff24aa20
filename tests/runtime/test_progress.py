"""What long work tells: by batch, what it waits for, on a terminal and without one."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from building import run_build
from rich.console import Console

from glit.pipeline import stage_task
from glit.pipeline.executors.local import LocalExecutor
from glit.pipeline.executors.protocols import Heartbeat
from glit.runtime import progress as progress_module
from glit.runtime.progress import StageProgress

UNIT = SimpleNamespace(index=0)


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(s=100.0)
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now.s)
    return now


def told(*, terminal, quiet=False):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120, no_color=True)
    return StageProgress(console, quiet=quiet), out


def through(progress, clock):
    """A stage of 40 samples, 10 of them done before, that loads for 30 s and moves by batch."""
    with progress:
        progress.begin("caption", total=40, done=10)
        progress.loading("llava-next-7b")
        clock.s += 30
        progress.ready()
        clock.s += 20
        progress.moved(UNIT, Heartbeat(rows=10, drops=1, gpu_memory=(20 << 30, 80 << 30)))
        yield
        progress.finished(UNIT, 30, {"looping": 2})
        yield


def test_lines_name_the_model_then_rate_time_left_drops_and_memory(clock):
    progress, out = told(terminal=False)
    steps = through(progress, clock)
    next(steps)
    assert out.getvalue().splitlines() == [
        "caption  10/40  loading llava-next-7b",
        # 10 in the 20 s since it was ready, so 40 s for the other 20
        "caption  20/40  2.0 s each, 40 s left, 1 dropped, GPU 20.0 of 80 GiB",
    ]
    next(steps)
    assert out.getvalue().splitlines()[-1] == "caption  40/40  1.5/s, 2 dropped"


def test_a_terminal_shows_the_same_in_a_bar(clock):
    progress, out = told(terminal=True)
    list(through(progress, clock))
    assert "40/40 1.5/s, 2 dropped" in out.getvalue()


def test_quiet_says_nothing(clock):
    for terminal in (True, False):
        progress, out = told(terminal=terminal, quiet=True)
        list(through(progress, clock))
        assert out.getvalue() == ""


def test_a_unit_begun_anew_is_not_counted_twice(clock):
    progress, out = told(terminal=False)
    with progress:
        progress.begin("score", total=20, done=0)
        progress.ready()
        for rows in (8, 2):  # its worker died after 8
            clock.s += 16
            progress.moved(UNIT, Heartbeat(rows=rows, drops=0))
    assert out.getvalue().splitlines()[-1].startswith("score    2/20  ")


class Notes(StageProgress):
    """Writes down what it is told."""

    def __init__(self):
        super().__init__(Console(file=io.StringIO()), quiet=True)
        self.notes = []

    def begin(self, stage, *, total, done, drops=True):
        super().begin(stage, total=total, done=done, drops=drops)
        self.stage, self.before = stage, 0

    def loading(self, model):
        self.notes.append((self.stage, "loading", model))

    def moved(self, unit, beat):
        self.notes.append((self.stage, "moved", beat.rows))


def test_a_build_tells_its_models_and_every_batch(scenes, tmp_path, monkeypatch):
    monkeypatch.setattr(stage_task, "_BEAT_EVERY_S", 0.0)
    notes = Notes()
    run_build(
        scenes / "images",
        tmp_path / "out",
        captions=scenes / "captions.jsonl",
        executor=LocalExecutor(),
        progress=notes,
        limit=4,
        recipe="mini",
    )
    assert ("propose", "loading", "mini-proposer") in notes.notes
    assert ("caption", "loading", "") in notes.notes  # brought, so no model
    moved = [rows for stage, what, rows in notes.notes if (stage, what) == ("score", "moved")]
    assert moved == [1, 2, 3, 4]
    assert ("pack", "moved", 1) in notes.notes


def test_the_rate_of_what_had_to_load_first_counts_from_the_first_rows(clock):
    """As exporters do, who tell of rows alone."""
    progress, out = told(terminal=False)
    with progress:
        progress.begin("export", total=300, done=0, drops=False)
        progress.loading("mini-clip")
        clock.s += 60
        progress.advance(100)
        clock.s += 20
        progress.advance(100)
    assert out.getvalue().splitlines() == [
        "export   0/300  loading mini-clip",
        "export   200/300  5.0/s, 20 s left",
    ]
