"""Everything in one process: for debugging, and for the smallest jobs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from glit.backends.device import best_device
from glit.cores import usable_cores
from glit.errors import RunError
from glit.executors.process import borrowed_process
from glit.executors.protocols import Tally, Task
from glit.gpu_errors import ruins_process


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
        with _one_line_where_the_gpu_fails(task.name), borrowed_process():
            worker = task.open(usable_cores())
            for unit in units:
                on_done(unit, worker.run(unit, ()))

    def close(self) -> None:
        """Nothing to stop."""


@contextlib.contextmanager
def _one_line_where_the_gpu_fails(stage: str) -> Iterator[None]:
    """This process cannot go on, and there is no other to take over."""
    try:
        yield
    except Exception as error:
        if not ruins_process(error):
            raise
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise RunError(
            f"stage {stage}: the GPU failed and this process cannot use it any more ({lines[0]}); "
            "what is done is kept: run the same command again, it goes on where it stopped"
        ) from error
