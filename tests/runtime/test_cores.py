"""How many cores there are, in a container and among processes."""

from __future__ import annotations

import os

import pytest

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
