"""Threads of a model on a CPU, beside other processes."""

from __future__ import annotations

import pytest
import torch

from glit.runtime import cpu_threads
from glit.runtime.cpu_threads import CpuThreads


@pytest.fixture
def clock(monkeypatch):
    """``clock(seconds, busy, own)`` sets what is seen at the next look."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(cpu_threads, "_cores", lambda: [0, 1])
    seen = [(0.0, 0.0, 0.0)]
    monkeypatch.setattr(cpu_threads, "_look", lambda: seen[0])
    monkeypatch.setattr(cpu_threads.time, "monotonic", lambda: seen[0][0])
    torch.set_num_threads(2)
    yield lambda *values: seen.__setitem__(0, values)
    torch.set_num_threads(1)


@pytest.mark.parametrize(("work_of_all", "threads"), [(4.0, 2), (8.0, 1), (4.8, 2)])
def test_a_core_that_another_process_has_is_left_to_it(clock, work_of_all, threads) -> None:
    with CpuThreads("cpu") as fitting:
        clock(4.0, work_of_all, 4.0)  # seconds, work of all, own
        assert fitting.fit() == threads == torch.get_num_threads()
        clock(8.0, 16.0, 4.0)
    assert torch.get_num_threads() == 2  # as its caller had it


def test_a_run_that_goes_on_keeps_its_number(clock) -> None:
    with CpuThreads("cpu") as fitting:
        clock(4.0, 8.0, 0.0)
        assert fitting.fit(2) == 2
        assert fitting.fit(1) == 1


@pytest.mark.parametrize("why", ["a GPU", "a choice of the user's"])
def test_threads_that_are_left_alone(clock, monkeypatch, why) -> None:
    if why != "a GPU":
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with CpuThreads("cuda" if why == "a GPU" else "cpu") as threads:
        clock(4.0, 8.0, 0.0)
        assert threads.fit() == 2


def test_work_of_this_process_is_told_from_the_machines() -> None:
    before = cpu_threads._look()
    after = before
    while after[2] == before[2]:  # its clock may tick every 10 ms
        sum(number * number for number in range(300_000))
        after = cpu_threads._look()
    assert after[0] > before[0] and after[2] > before[2]
    assert after[1] >= before[1]
