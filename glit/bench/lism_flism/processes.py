"""The columns' processes, seen from outside: orders in, answers out, an end whatever happens.

Processes are forked from a server that is started afresh, has imported the libraries and done
nothing else: each is as clean as a spawned one, without importing torch four times.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import wait
from types import TracebackType
from typing import Any, Self

from glit.bench.lism_flism.column import column_main
from glit.bench.lism_flism.job import Facts, Job, Order, Pass
from glit.errors import GlitError, RunError

_PATIENCE_S = 5.0
_PRELOADED = [
    "glit.bench.lism_flism.in_glit",
    "glit.bench.lism_flism.one_at_a_time",
    "segment_anything",
    "transformers.models.clip.modeling_clip",
    "transformers.models.yolos.modeling_yolos",
]


class ColumnProcess:
    """A column at work in a process of its own."""

    def __init__(self, job: Job) -> None:
        self.title = job.column.title
        context = get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        self._answers, theirs = context.Pipe()
        self._process = context.Process(target=column_main, args=(job, theirs), daemon=True)
        with _deaf_to_interrupts():
            self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def wait_until_ready(self) -> None:
        """Until its models are loaded.

        Raises:
            GlitError: the column failed or its process died.
        """
        self._answer()

    def facts(self) -> Facts:
        """What the column knows of its models, and how fast the machine is.

        Raises:
            GlitError: the column failed or its process died.
        """
        return self._ask("facts")

    def ask(self, order: Order) -> Pass:
        """Have a pass done.

        Raises:
            GlitError: the column failed or its process died.
        """
        return self._ask(order)

    def _ask(self, order: Any) -> Any:
        with contextlib.suppress(BrokenPipeError):
            self._answers.send(order)
        return self._answer()

    def _answer(self) -> Any:
        wait([self._answers, self._process.sentinel])
        try:
            if not self._answers.poll():
                raise EOFError
            kind, value = self._answers.recv()
        except (EOFError, ConnectionResetError) as error:
            self._process.join(_PATIENCE_S)
            raise RunError(
                f"column {self.title!r}: its process died (exit code {self._process.exitcode}); "
                "if memory is short, take fewer images with --images or smaller --weights"
            ) from error
        if kind == "failed":
            message, exit_code = value
            failure = GlitError(f"column {self.title!r}: {message}")
            failure.exit_code = exit_code
            raise failure
        return value

    def close(self) -> None:
        """End the process, by force if it must be."""
        self._answers.close()
        self._process.terminate()
        self._process.join(_PATIENCE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


class Columns:
    """All columns alive; one works at a time."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.processes: dict[str, ColumnProcess] = {}
        self._jobs = jobs

    def __enter__(self) -> Self:
        try:
            for job in self._jobs:
                self.processes[job.column.key] = ColumnProcess(job)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        for process in self.processes.values():
            process.close()


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """What is started inside never hears Ctrl-C, not even while Python is still starting."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
