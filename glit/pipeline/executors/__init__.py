"""Run tasks in this process or on Ray. The only folder that imports Ray."""

from __future__ import annotations

import contextlib
import signal
import threading
import warnings
from collections.abc import Iterator
from typing import Any, Literal, NoReturn, get_args

from glit.errors import StoppedError, UserError, closest
from glit.pipeline.executors.protocols import Executor
from glit.recipes.extras import require
from glit.runtime.cores import unused_allocation

ExecutorName = Literal["ray", "local"]
ExecutorChoice = Literal["auto", "ray", "local"]
"""``auto`` is settled by :func:`glit.pipeline.executors.choice.choose_executor`."""


@contextlib.contextmanager
def open_executor(
    name: ExecutorName, *, num_workers: int | None = None, address: str | None = None
) -> Iterator[Executor]:
    """The named executor, closed afterwards whatever happens.

    SIGTERM, which batch systems send before they take a machine away, stops as Ctrl-C does, unless
    the caller's program handles it itself.

    Args:
        name: ``ray``, or ``local`` for everything in this process.
        num_workers: processes of Ray; None takes what memory and cores allow.
        address: of a running Ray cluster; None takes RAY_ADDRESS, and without it this machine.

    Raises:
        UserError: there is no executor of that name, or no cluster at the address.
        MissingExtraError: Ray is not installed.
        StoppedError: Ctrl-C or SIGTERM.
    """
    if told := unused_allocation():
        warnings.warn(told, stacklevel=3)
    came: list[int] = []

    def stop(signum: int, frame: Any) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Slurm sends it again
        came.append(signum)
        raise _Terminated

    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM) if is_main else None
    handler = stop if before is signal.SIG_DFL else before
    executor = None
    try:
        _handle(handler)
        executor = _make(name, num_workers, address)
        _handle(handler)  # once more: those of Ray, which has started, print stacks
        yield executor
    except KeyboardInterrupt as error:
        stopped = StoppedError("stopped; what is done is kept, the same command goes on from here")
        if came:
            stopped.exit_code = 128 + signal.SIGTERM
        raise stopped from error
    finally:
        if executor is not None:
            executor.close()
        _handle(before)


class _Terminated(KeyboardInterrupt):
    """The exception that SIGTERM raises. Where a KeyboardInterrupt itself leaves code that ``exec``
    runs, as the import of a library may, CPython ends the process with SIGINT, although it was
    caught."""


def _handle(handler: Any) -> None:
    """Handle SIGTERM with this; nothing for None, which is a handler that Python does not know."""
    if handler is not None:
        signal.signal(signal.SIGTERM, handler)


def _make(name: ExecutorName, num_workers: int | None, address: str | None) -> Executor:
    if name not in get_args(ExecutorName):
        raise UserError(
            f"executor {name!r}: no such executor; {closest(name, get_args(ExecutorName))}"
        )
    if name == "local":
        if address is not None:
            raise UserError("--ray-address: needs --executor ray, found local")
        from glit.pipeline.executors.local import LocalExecutor

        return LocalExecutor()
    require("ray", needed_for="--executor ray")
    from glit.pipeline.executors.on_ray import RayExecutor

    return RayExecutor(num_workers=num_workers, address=address)
