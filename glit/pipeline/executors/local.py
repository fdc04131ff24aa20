"""Everything in one process: for debugging, and for the smallest jobs."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial

from glit.models.device import best_device
from glit.pipeline.executors.process import borrowed_process
from glit.pipeline.executors.protocols import BusyInterval, Heartbeat, Job, Tally
from glit.runtime.cores import usable_cores
from glit.runtime.gpu_errors import one_line_where_the_gpu_fails

_GO_ON = "run the same command again, it goes on where it stopped"


class LocalExecutor:
    """Jobs and their units one after the other. A crash of a decoder or a model takes the process
    with it."""

    @property
    def device(self) -> str:
        """See :class:`glit.pipeline.executors.protocols.Executor`."""
        return best_device()

    @property
    def size(self) -> tuple[int, int]:
        """See :class:`glit.pipeline.executors.protocols.Executor`; one GPU at most."""
        return usable_cores(), int(best_device() == "cuda")

    def run(self, jobs: Sequence[Job]) -> None:
        """See :class:`glit.pipeline.executors.protocols.Executor`."""
        for job in jobs:
            self.run_job(job)

    def run_job(self, job: Job) -> None:
        """Do every unit of one job."""
        job.begin()
        if not job.units:
            return
        what, watch = f"stage {job.task.name}", job.watch
        process = borrowed_process(for_model=bool(job.task.loads))
        # outside: to put back what a GPU holds fails as well
        with one_line_where_the_gpu_fails(what, go_on=_GO_ON), process:
            watch.loading(job.task.loads)
            worker = job.task.open(usable_cores())
            watch.ready()
            for unit in job.units:
                start = time.time()
                tally = to_its_end(worker.run(unit, None), partial(watch.moved, unit))
                stretch = BusyInterval(
                    worker=socket.gethostname(), start_s=start, stop_s=time.time()
                )
                job.worked(stretch)
                job.on_done(unit, tally)

    def close(self) -> None:
        """Nothing to stop."""


def to_its_end(
    running: Generator[Heartbeat, None, Tally], on_beat: Callable[[Heartbeat], None]
) -> Tally:
    """A unit's tally; what it tells on the way goes to ``on_beat``."""
    while True:
        try:
            on_beat(next(running))
        except StopIteration as end:
            return end.value
