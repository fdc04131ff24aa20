"""The benchmark's columns as processes: one that dies, fails or is interrupted."""

from __future__ import annotations

import dataclasses
import os
import signal

import psutil
import pytest

from glit.bench.harness import ProcessWorker
from glit.bench.lism_flism.columns import COLUMNS, PRELOADED, ColumnJob, columns_on
from glit.bench.lism_flism.in_glit import InGlit
from glit.bench.lism_flism.models import find_models
from glit.bench.lism_flism.run import Request, run
from glit.errors import GlitError, RunError, StoppedError


@pytest.fixture
def job(tmp_path) -> ColumnJob:
    models = find_models("mini", "cpu")
    return models.job(COLUMNS[3], device="cpu", threads=1, scratch=tmp_path / "scratch")


def started(job: ColumnJob) -> ProcessWorker:
    return ProcessWorker(f"column {job.column.title!r}", InGlit, job, preload=PRELOADED)


@pytest.mark.slow
def test_a_dying_column_is_named(job):
    process = started(job)
    try:
        process.wait()
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(RunError, match=r"column 'FLISM in glit': its process died"):
            process.call("perform", None)
    finally:
        process.close()
    assert not psutil.pid_exists(process.pid)


@pytest.mark.slow
def test_a_column_that_fails_says_why_and_is_named(job, tmp_path):
    missing = dataclasses.replace(job.proposer, path=tmp_path / "nowhere")
    process = started(dataclasses.replace(job, proposer=missing))
    try:
        with pytest.raises(GlitError, match="column 'FLISM in glit': model 'mini-proposer'") as it:
            process.wait()
        assert it.value.exit_code == 2
    finally:
        process.close()


@pytest.mark.slow
def test_interrupting_ends_all_processes(monkeypatch):
    workers = []
    original = ProcessWorker.__init__

    def remember(self, *arguments, **options):
        original(self, *arguments, **options)
        workers.append(self)

    monkeypatch.setattr(ProcessWorker, "__init__", remember)

    def interrupt(text: str) -> None:
        if "loading" in text:
            raise KeyboardInterrupt

    request = Request(images=None, weights="mini", device="cpu", num_images=1, threads=1)
    with pytest.raises(StoppedError, match="stopped"):
        run(request, interrupt)
    assert len(workers) == len(columns_on("cpu"))
    assert not any(psutil.pid_exists(process.pid) for process in workers)
