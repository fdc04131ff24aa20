"""Choose a model's number of CPU threads by the cores that other processes leave free.

The threads of a matrix product wait for the slowest of them, some thousand times a training step.
Where another process has a core, that one waits for its turn each time, and two threads are then
slower than one alone by a multiple.
"""

from __future__ import annotations

import os
import time

import psutil
import torch

_SHORTEST_LOOK_S = 0.2
"""Shortest look in seconds: what is seen in less time is a guess, and counts as little."""


class CpuThreads:
    """Set torch's threads once, to the number of cores that were free since creation.

    The number of threads decides the last digits of a sum, so a run keeps it to its end and over
    ``--resume``. ``OMP_NUM_THREADS`` is a user's own choice and stays.
    """

    def __init__(self, device: str) -> None:
        self._most = torch.get_num_threads()
        self._fits = device == "cpu" and self._most > 1 and "OMP_NUM_THREADS" not in os.environ
        self._seen = _look()

    def __enter__(self) -> CpuThreads:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fits:
            torch.set_num_threads(self._most)

    def fit(self, kept: int | None = None) -> int:
        """Set the number of threads, and return it.

        Args:
            kept: the number that the run had before; taken as it is.
        """
        if self._fits and kept is not None:
            torch.set_num_threads(kept)
        elif self._fits:
            wall, all_work, own = (new - old for new, old in zip(_look(), self._seen, strict=True))
            others = max(0.0, all_work - own) / max(wall, _SHORTEST_LOOK_S)
            torch.set_num_threads(threads_beside(others, cores=len(_cores()), most=self._most))
        return torch.get_num_threads()


def threads_beside(others: float, *, cores: int, most: int) -> int:
    """The number of threads for this process if other processes keep so many cores busy.

    >>> [threads_beside(others, cores=2, most=2) for others in (0.1, 0.6, 1.0, 5.0)]
    [2, 1, 1, 1]
    """
    return min(most, max(1, round(cores - others)))


def _look() -> tuple[float, float, float]:
    """Seconds: the clock's, the work of this process's cores, its own work."""
    each = psutil.cpu_times(percpu=True)
    busy = sum(_worked(each[core]) for core in _cores() if core < len(each))
    own = psutil.Process().cpu_times()
    return time.monotonic(), busy, own.user + own.system


def _cores() -> list[int]:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _worked(times: object) -> float:
    """Return the part of a core's times in which it was not free."""
    names = ("user", "nice", "system", "irq", "softirq", "steal")
    return sum(getattr(times, name, 0.0) for name in names)
