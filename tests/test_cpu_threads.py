"""Threads of a model on a CPU, beside other processes."""

from __future__ import annotations

import pytest
import torch

from glit import cpu_threads
from glit.cpu_threads import CpuThreads


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


def test_one_thread_while_another_process_has_a_core_and_two_when_it_is_gone(clock) -> None:
    found = []
    with CpuThreads("cpu") as threads:
        # seconds, work of all, own: alone; beside two that take half; too soon to look; alone
        for seen in ((2, 4, 4), (4, 8, 6), (5, 8, 6), (8, 14, 12)):
            clock(*map(float, seen))
            threads.fit()
            found.append(torch.get_num_threads())
        clock(12.0, 22.0, 12.0)
        threads.fit()
        assert torch.get_num_threads() == 1
    assert found == [2, 1, 1, 2]
    assert torch.get_num_threads() == 2  # as its caller had it


@pytest.mark.parametrize("why", ["a GPU", "a choice of the user's"])
def test_threads_that_are_left_alone(clock, monkeypatch, why) -> None:
    if why != "a GPU":
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with CpuThreads("cuda" if why == "a GPU" else "cpu") as threads:
        clock(4.0, 8.0, 0.0)
        threads.fit()
        assert torch.get_num_threads() == 2


def test_work_of_this_process_is_told_from_the_machines() -> None:
    before = cpu_threads._look()
    sum(number * number for number in range(300_000))
    after = cpu_threads._look()
    assert after[0] > before[0] and after[2] > before[2]
    assert after[1] >= before[1]
