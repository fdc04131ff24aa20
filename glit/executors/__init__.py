"""Run tasks in this process or on Ray. The only folder that imports Ray."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Literal, NoReturn, Self, get_args

import psutil

from glit.errors import StoppedError, UserError, closest
from glit.executors.protocols import Executor
from glit.recipes.extras import require
from glit.runtime.cores import unused_allocation

ExecutorName = Literal["ray", "local"]
ExecutorChoice = Literal["auto", "ray", "local"]
"""``auto`` is settled by :func:`glit.executors.choice.choose_executor`."""
_STOPPED = "stopped; what is done is kept, the same command goes on from here"
_GRACE_S = 10.0
"""From SIGTERM to the end; SIGKILL follows after 30 s on Slurm and Kubernetes."""


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
    with _SigtermRaises() as sigterm:
        executor = None
        try:
            executor = _make(name, num_workers, address)
            sigterm.renew()
            yield executor
        except KeyboardInterrupt as error:
            stopped = StoppedError(_STOPPED)
            if sigterm.came:
                stopped.exit_code = 128 + signal.SIGTERM
            raise stopped from error
        finally:
            if executor is not None:
                executor.close()


class _Terminated(KeyboardInterrupt):
    """The exception that SIGTERM raises. Where a KeyboardInterrupt itself leaves code that ``exec``
    runs, as the import of a library may, CPython ends the process with SIGINT, although it was
    caught."""


class _SigtermRaises:
    """Makes SIGTERM raise what Ctrl-C does within the block, once, unless the caller handles it."""

    def __init__(self) -> None:
        self.came = False
        self._left = threading.Event()
        self._before = self._wanted = signal.getsignal(signal.SIGTERM)
        if threading.current_thread() is not threading.main_thread():
            self._before = self._wanted = None
        elif self._before is signal.SIG_DFL:
            self._wanted = self._raise

    def _raise(self, signum: int, frame: Any) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Slurm sends it again
        self.came = True
        raise _Terminated

    def _watch(self, told: socket.socket) -> None:
        """End the process where the block is not left in time. Python runs the handler only when
        the main thread comes back to it, which in Ray's client may take a minute; the system tells
        of the signal at once."""
        with told:
            while number := told.recv(1):
                if number[0] == signal.SIGTERM and not self._left.wait(_GRACE_S):
                    _end_now()

    def renew(self) -> None:
        """Once more, when Ray has started: its handlers print the stacks of native threads."""
        if self._wanted is not None:
            signal.signal(signal.SIGTERM, self._wanted)

    def __enter__(self) -> Self:
        self.renew()
        if self._wanted == self._raise:
            told, self._tell = socket.socketpair()
            self._tell.setblocking(False)
            self._told_before = signal.set_wakeup_fd(self._tell.fileno(), warn_on_full_buffer=False)
            threading.Thread(target=self._watch, args=(told,), daemon=True, name="sigterm").start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._left.set()
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
        if self._wanted == self._raise:
            signal.set_wakeup_fd(self._told_before)
            self._tell.close()


def _end_now() -> None:
    """End this process: where SIGTERM went to all processes, Ray's among them, Ray's client waits
    for a minute for those that are gone."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()
    print(f"glit: {_STOPPED}", file=sys.stderr, flush=True)
    os._exit(128 + signal.SIGTERM)


def _make(name: ExecutorName, num_workers: int | None, address: str | None) -> Executor:
    if name not in get_args(ExecutorName):
        raise UserError(
            f"executor {name!r}: no such executor; {closest(name, get_args(ExecutorName))}"
        )
    if name == "local":
        if address is not None:
            raise UserError("--ray-address: needs --executor ray, found local")
        from glit.executors.local import LocalExecutor

        return LocalExecutor()
    require("ray", needed_for="--executor ray")
    from glit.executors.on_ray import RayExecutor

    return RayExecutor(num_workers=num_workers, address=address)
