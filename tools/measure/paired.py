"""Paired timing: two ways of doing the same, in turn, in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Medians over repeats of two ways of doing the same work."""

    what: str
    ours_s: float
    """CPU seconds of this process, all threads."""
    other_s: float
    ratios: tuple[float, ...]
    """other / ours, pair by pair."""

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    def line(self) -> str:
        """One line with the median and the spread."""
        return (
            f"{self.what}: {self.ratio:.2f}x ({min(self.ratios):.2f}-{max(self.ratios):.2f}), "
            f"{self.ours_s:.3f} s against {self.other_s:.3f} s of CPU time"
        )


def compare(
    what: str, ours: Callable[[], object], other: Callable[[], object], *, repeats: int
) -> Comparison:
    """Run both in turn, one uncounted pair first.

    CPU time rather than wall time: on one thread it says the same on an idle machine and stays
    fair on a busy one.
    """
    pairs = []
    for _ in range(repeats + 1):
        pairs.append((_cpu_s(ours), _cpu_s(other)))
    counted = pairs[1:]
    return Comparison(
        what=what,
        ours_s=statistics.median(a for a, _ in counted),
        other_s=statistics.median(b for _, b in counted),
        ratios=tuple(b / a for a, b in counted),
    )


def _cpu_s(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started
