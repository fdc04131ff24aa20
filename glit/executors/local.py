"""Everything in one process: for debugging, and for the smallest jobs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

from glit.backends.device import best_device
from glit.cores import usable_cores
from glit.executors.process import borrowed_process
from glit.executors.protocols import Beat, Tally, Task, Unwatched, Watch
from glit.gpu_errors import one_line_where_the_gpu_fails

_GO_ON = "run the same command again, it goes on where it stopped"
_UNWATCHED = Unwatched()


class LocalExecutor:
    """Units one after the other. A crash of a decoder or a model takes the process with it."""

    @property
    def device(self) -> str:
        """See :class:`glit.executors.protocols.Executor`."""
        return best_device()

    def run(
        self,
        task: Task,
        units: Sequence[Any],
        on_done: Callable[[Any, Tally], None],
        watch: Watch = _UNWATCHED,
    ) -> None:
        """See :class:`glit.executors.protocols.Executor`."""
        if not units:
            return
        # outside: to put back what a GPU holds fails as well
        with one_line_where_the_gpu_fails(f"stage {task.name}", go_on=_GO_ON), borrowed_process():
            watch.loading(task.loads)
            worker = task.open(usable_cores())
            watch.ready()
            for unit in units:
                on_done(unit, to_its_end(worker.run(unit, {}), partial(watch.moved, unit)))

    def close(self) -> None:
        """Nothing to stop."""


def to_its_end(running: Generator[Beat, None, Tally], on_beat: Callable[[Beat], None]) -> Tally:
    """A unit's tally; what it tells on the way goes to ``on_beat``."""
    while True:
        try:
            on_beat(next(running))
        except StopIteration as end:
            return end.value
