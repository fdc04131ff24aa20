"""Where tasks run: in this process, or on Ray. The only folder that imports Ray."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal, get_args

from glit.errors import StoppedError, UserError, closest
from glit.executors.protocols import Executor
from glit.extras import require

ExecutorName = Literal["ray", "local"]


@contextlib.contextmanager
def open_executor(
    name: ExecutorName, *, num_workers: int | None = None, address: str | None = None
) -> Iterator[Executor]:
    """The named executor, closed afterwards whatever happens.

    Args:
        name: ``ray``, or ``local`` for everything in this process.
        num_workers: processes of Ray; None takes what memory and cores allow.
        address: of a running Ray cluster; None takes RAY_ADDRESS, and without it this machine.

    Raises:
        UserError: there is no executor of that name, or no cluster at the address.
        MissingExtraError: Ray is not installed.
        StoppedError: Ctrl-C.
    """
    executor = _make(name, num_workers, address)
    try:
        yield executor
    except KeyboardInterrupt as error:
        raise StoppedError(
            "stopped; what is done is kept, the same command goes on from here"
        ) from error
    finally:
        executor.close()


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
