"""As many threads for a model on a CPU as other processes leave cores.

The threads of a matrix product wait for the slowest of them, some thousand times a training step.
Where another process has a core, that one waits for its turn each time, and two threads are then
slower than one alone by a multiple.
"""

from __future__ import annotations

import os
import time

import psutil
import torch

_LOOK_EVERY_S = 2.0
"""Others come and go; a shorter look is a guess."""


class CpuThreads:
    """Fits torch's threads to the cores that are free, between one batch and the next.

    ``OMP_NUM_THREADS`` is a user's own choice and stays; more than torch has at the start are
    never taken, and at the end it has as many again.
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

    def fit(self) -> None:
        """Set the number of threads, where it is time to look again."""
        if self._fits and time.monotonic() - self._seen[0] >= _LOOK_EVERY_S:
            before, self._seen = self._seen, _look()
            wall, all_work, own = (new - old for new, old in zip(self._seen, before, strict=True))
            others = max(0.0, all_work - own) / wall
            torch.set_num_threads(threads_beside(others, cores=len(_cores()), most=self._most))


def threads_beside(others: float, *, cores: int, most: int) -> int:
    """Threads of this process, where other processes keep so many of its cores busy.

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
    """Of a core's times, those in which it was not free."""
    names = ("user", "nice", "system", "irq", "softirq", "steal")
    return sum(getattr(times, name, 0.0) for name in names)
