"""Everything in one process: for debugging, and for the smallest jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from glit.backends.device import best_device
from glit.cores import usable_cores
from glit.executors.process import borrowed_process
from glit.executors.protocols import Tally, Task
from glit.gpu_errors import one_line_where_the_gpu_fails

_GO_ON = "run the same command again, it goes on where it stopped"


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
        # outside: to put back what a GPU holds fails as well
        with one_line_where_the_gpu_fails(f"stage {task.name}", go_on=_GO_ON), borrowed_process():
            worker = task.open(usable_cores())
            for unit in units:
                on_done(unit, worker.run(unit, ()))

    def close(self) -> None:
        """Nothing to stop."""
