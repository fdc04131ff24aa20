"""Try on this machine whether a GPU's own way of doing something is right and faster.

Each way is tried once per process and GPU: first its numbers, then its speed beside the plain way.
Elsewhere than on a GPU the plain way is taken, and nothing is tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from glit.runtime.gpu_errors import ruins_process

_REPEATS = 5

_verdicts: dict[tuple[str, str], tuple[bool, str]] = {}
"""By name of the way and device: whether it is used, and why in words."""


def chosen(
    name: str,
    device: Any,
    *,
    is_right: Callable[[], bool],
    ways: Callable[[], tuple[Callable[[], object], Callable[[], object]]],
) -> bool:
    """Return whether a way is used on a device.

    Args:
        name: of the way.
        device: a ``torch.device``.
        is_right: tries its numbers; may warn.
        ways: gives the way and the plain one, to be timed.
    """
    if device.type != "cuda" or not is_right():
        return False
    key = (name, str(device))
    if key not in _verdicts:
        _verdicts[key] = _verdict(ways)
    return _verdicts[key][0]


def verdict(name: str, device: Any, *, is_chosen: bool) -> str:
    """Return a line with the chosen kernel and the reason."""
    known = _verdicts.get((name, str(device)))
    words = known[1] if known else "not the plain way's numbers"
    return f"{name}: {'used' if is_chosen else 'plain way used'} ({words})"


def _verdict(
    ways: Callable[[], tuple[Callable[[], object], Callable[[], object]]],
) -> tuple[bool, str]:
    try:
        faster = times_faster(*ways())
    except Exception as error:
        if ruins_process(error):
            raise
        return False, f"cannot be timed: {' '.join(str(error).split())}"
    return faster > 1, f"{faster:.2f} times as fast"


def times_faster(fast: Callable[[], object], plain: Callable[[], object]) -> float:
    """Return how many times faster one way is than the other: shortest of some runs, after one
    each."""
    return _seconds(plain) / _seconds(fast)


def _seconds(work: Callable[[], object]) -> float:
    import torch

    times = []
    for _ in range(_REPEATS + 1):
        torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return min(times[1:])
