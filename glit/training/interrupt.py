"""Handle Ctrl-C and SIGTERM between steps, and let processes wait for each other."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from glit.training.gather import num_ranks


class Interrupt:
    """The signal that asked this process to stop, if one did."""

    signum: int = 0
    """The first signal's number; 0: none came."""

    def is_set(self) -> bool:
        """Return whether one came."""
        return self.signum != 0


@contextlib.contextmanager
def interrupt_flag() -> Iterator[Interrupt]:
    """Set a flag on Ctrl-C and SIGTERM, so that a run stops between steps.

    A second Ctrl-C stops at once. SIGTERM, which batch systems send before they take a machine away
    and send again to every process, may come as often as it likes.
    """
    flag = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    def handle(signum: int, frame: Any) -> None:
        if flag.is_set() and signum == signal.SIGINT:
            raise KeyboardInterrupt
        flag.signum = flag.signum or signum

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield flag
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Vote:
    """Agree between processes whether to stop, once per step.

    With several processes the answer is to the question of the step before, which has travelled
    over the network meanwhile, from memory to memory: nobody waits for it, and no GPU is asked.
    """

    def __init__(self) -> None:
        self._group = dist.new_group(backend="gloo") if num_ranks() > 1 else None
        self._asked: tuple[torch.Tensor, dist.Work] | None = None

    def __call__(self, stop: bool) -> bool:
        """Submit this process's vote and return the result; all processes must call it alike."""
        if self._group is None:
            return stop
        before, flag = self._asked, torch.tensor([int(stop)])
        work = dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=self._group, async_op=True)
        assert work is not None
        self._asked = flag, work
        if before is None:
            return False
        before[1].wait()
        return bool(before[0])


class WaitForFirst:
    """Make all processes wait while the first one measures; every process must call it.

    The group that exchanges gradients would give up after some minutes.
    """

    def __init__(self) -> None:
        many = num_ranks() > 1
        self._group = dist.new_group(backend="gloo", timeout=timedelta(days=1)) if many else None

    def __call__(self) -> None:
        """Return when all processes have arrived."""
        if self._group is not None:
            dist.all_reduce(torch.zeros(1), group=self._group)
