"""One column in a process of its own, so that its memory, threads and allocator are its own."""

from __future__ import annotations

import contextlib
import signal
import time
import warnings
from multiprocessing.connection import Connection
from typing import Protocol

from glit.bench.lism_flism.clock import watched_kernels
from glit.bench.lism_flism.job import Batch, Facts, Job, Order, Pass, Result
from glit.bench.lism_flism.machine import peak_mb
from glit.errors import GlitError


class Way(Protocol):
    """A way of working, its models loaded."""

    def facts(self) -> Facts:
        """What it knows of its models."""
        ...

    def run(self, batch: Batch) -> Result:
        """Work on a batch."""
        ...


def column_main(job: Job, connection: Connection) -> None:
    """The process: load the models, say so, then answer every order.

    Answers are pairs: ``"done"`` with a value, or ``"failed"`` with one line and an exit code.
    An order asks for a pass, or is the word ``"facts"``.
    The parent alone hears Ctrl-C; it ends this process, as does its own end.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")  # four processes share one terminal
    with contextlib.suppress(EOFError, BrokenPipeError):
        try:
            way = open_way(job)
            connection.send(("done", None))
            while True:
                order = connection.recv()
                answer = way.facts() if order == "facts" else perform(way, order)
                connection.send(("done", answer))
        except GlitError as error:
            connection.send(("failed", (str(error), error.exit_code)))
        except (EOFError, BrokenPipeError):
            raise
        except Exception as error:  # noqa: BLE001 - sent to the parent process, which raises it
            connection.send(("failed", (f"{type(error).__name__}: {error}", 1)))


def open_way(job: Job) -> Way:
    """Load a column's models."""
    if job.column.in_glit:
        from glit.bench.lism_flism.in_glit import InGlit

        return InGlit(job)
    from glit.bench.lism_flism.one_at_a_time import OneAtATime

    return OneAtATime(job)


def perform(way: Way, order: Order) -> Pass:
    """One pass, measured."""
    device_s = None
    cpu = time.process_time()
    if order.watch_device:
        with watched_kernels() as seconds:
            result = way.run(order.batch)
        device_s = seconds[0]
    else:
        result = way.run(order.batch)
    return Pass(
        result=result,
        num_images=len(order.batch.samples),
        cpu_s=time.process_time() - cpu,
        device_s=device_s,
        peak_host_mb=peak_mb(),
        peak_device_mb=_peak_device_mb(),
    )


def _peak_device_mb() -> float | None:
    import torch

    if not torch.cuda.is_initialized():
        return None
    return torch.cuda.max_memory_allocated() / 2**20
