"""Everything in one process: for debugging, and for the smallest jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from glit.backends.device import best_device
from glit.executors.process import borrowed_process
from glit.executors.protocols import Tally, Task


class LocalExecutor:
    """Units one after the other. A crash of a decoder or a model takes the process with it."""

    @property
    def device(self) -> str:
        """See :class:`glit.executors.protocols.Executor`."""
        return best_device()

    def run(self, task: Task, units: Sequence[Any], on_done: Callable[[Any, Tally], None]) -> None:
        """See :class:`glit.executors.protocols.Executor`."""
        if not units:
            return
        with borrowed_process():
            worker = task.open()
            for unit in units:
                on_done(unit, worker.run(unit, ()))

    def close(self) -> None:
        """Nothing to stop."""
