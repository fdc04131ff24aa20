"""How many cores there are, in a container and among processes."""

from __future__ import annotations

import os

import pytest

from glit.pipeline.executors import open_executor
from glit.runtime import cores


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Eight cores, no container."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(cores, "_CGROUP", tmp_path)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("limit", "wanted"),
    [("max 100000", 8), ("250000 100000", 3), ("50000 100000", 1), ("9900000 100000", 8), ("", 8)],
)
def test_a_containers_limit(machine, limit, wanted) -> None:
    (machine / "cpu.max").write_text(limit)
    assert cores.usable_cores() == wanted


@pytest.mark.parametrize(("quota", "wanted"), [("-1", 8), ("400000", 4)])
def test_an_older_containers_limit(machine, quota, wanted) -> None:
    (machine / "cpu").mkdir()
    (machine / "cpu" / "cpu.cfs_quota_us").write_text(quota)
    (machine / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert cores.usable_cores() == wanted


@pytest.mark.parametrize(("ranks", "wanted"), [("1", 8), ("3", 2), ("16", 1), ("", 8)])
def test_processes_of_a_machine_share_the_cores(machine, monkeypatch, ranks, wanted) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    assert cores.num_threads(-1) == wanted
    assert cores.num_threads(0) == 0 and cores.num_threads(5) == 5


@pytest.mark.parametrize(
    ("job", "tasks", "wanted"),
    [("16(x2)", "1", "8 of the job's 16 cores; start it with srun --cpus-per-task=16"),
     ("16", "2(x2)", ""), ("8", "1", ""), ("", "1", ""), ("32,16", "2", "--cpus-per-task=16")],
)  # fmt: skip
def test_a_step_of_slurm_with_fewer_cores_than_its_job(machine, monkeypatch, job, tasks, wanted):
    monkeypatch.setenv("SLURM_JOB_CPUS_PER_NODE", job)
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", tasks)
    told = cores.unused_allocation()
    assert wanted in told and bool(told) == bool(wanted)


def test_a_build_tells_of_it(machine, monkeypatch):
    monkeypatch.setattr(
        "glit.pipeline.executors.unused_allocation", lambda: "Slurm gave this process 1"
    )
    with pytest.warns(UserWarning, match="Slurm gave this process 1"), open_executor("local"):
        pass
