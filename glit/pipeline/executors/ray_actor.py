"""The process that holds an opened task on Ray, and its place in the pool."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, OutOfMemoryError, RayActorError

from glit.errors import DamagedTableError, GlitError, StorageError
from glit.masking import masked
from glit.pipeline.executors.process import prepare_own_process
from glit.pipeline.executors.protocols import BusyInterval, Heartbeat, Tally, Task, Worker
from glit.runtime.gpu_errors import ruins_process
from glit.storage.remote_settings import set_here

_KNOWN_WITHIN_S = 60.0
_ASK_AGAIN_S = 0.5
DEAD = (RayActorError, ActorUnavailableError, OutOfMemoryError)
"""A worker is gone: crashed, killed, out of reach, or ended by Ray's watch over memory."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A glit error as an actor returns it: its line and its exit code, without its class."""

    message: str
    exit_code: int
    whole: DamagedTableError | StorageError | None = None
    """The error itself, where the driver does something about it."""


class Actor:
    """A worker process. Errors come back as values, so that only a death is an exception; a process
    whose GPU has failed dies, and a fresh one takes its unit.

    Args:
        stores: how the driver's program asks object stores; keys may be among it.
    """

    def __init__(self, stores: dict[str, dict[str, Any]]) -> None:
        set_here(stores)
        self._worker: Worker | None = None

    def open(self, task: Task, threads: int) -> Failure | str:
        """Load the task's model; the node it is on."""
        prepare_own_process(for_model=bool(task.loads))
        self._worker = None
        failure = _guarded(lambda: setattr(self, "_worker", task.open(threads)))
        return failure or ray.get_runtime_context().get_node_id()

    def ping(self) -> None:
        """Answers that it is alive, when it comes to it."""

    def gpu_bytes(self) -> int:
        """Memory of this actor's GPU."""
        import torch

        return torch.cuda.mem_get_info()[1]

    def run(self, unit: Any, excluded: Mapping[str, str] | None) -> Generator[Any, None, None]:
        """Beats as they come, in the end the tally or a failure."""
        assert self._worker is not None
        running = self._worker.run(unit, excluded)
        while True:
            told = _guarded(lambda: _next(running))
            yield told
            if not isinstance(told, Heartbeat):
                return


RemoteActor: Any = ray.remote(max_restarts=0, max_task_retries=0)(Actor)


def end(actor: Any) -> None:
    """Kill an actor, which may be dead already."""
    with contextlib.suppress(RayActorError, ValueError):
        ray.kill(actor)


def machines() -> frozenset[str]:
    """The nodes that are alive."""
    return frozenset(node["NodeID"] for node in ray.nodes() if node["Alive"])


def is_alive(actor: Any) -> bool:
    """Return whether an actor that could not be reached is alive after all; waits until Ray knows,
    which is some seconds after a machine is lost."""
    deadline = time.monotonic() + _KNOWN_WITHIN_S
    while time.monotonic() < deadline:
        try:
            ray.get(actor.ping.remote(), timeout=_KNOWN_WITHIN_S)
        except GetTimeoutError:  # it has other things to do
            return True
        except ActorUnavailableError:
            time.sleep(_ASK_AGAIN_S)
        except RayActorError:
            return False
        else:
            return True
    return False


def _next(running: Generator[Heartbeat, None, Tally]) -> Heartbeat | Tally:
    """The next beat, or the tally that comes after the last."""
    try:
        return next(running)
    except StopIteration as end:
        return end.value


def _guarded(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except GlitError as error:
        whole = error if isinstance(error, DamagedTableError | StorageError) else None
        return Failure(str(error), error.exit_code, whole)
    except Exception as error:
        if ruins_process(error):
            # to the worker's log: the driver learns only of the death
            print(masked(traceback.format_exc()), file=sys.stderr, flush=True)
            os._exit(1)
        told = traceback.format_exc()
        if (hidden := masked(told)) != told:  # Ray sends and logs the text of an error
            raise RuntimeError(hidden) from None
        raise


@dataclass(eq=False)
class Slot:
    """An actor and the units it has been given, the first of them at work: where it works at
    several, a death is held against the first, and the others go back."""

    actor: Any
    given: deque[tuple[Any, Any]] = field(default_factory=deque)
    """(what streams from it, unit); one more than it works at, so that it need not wait."""
    opening: Any = None
    """The reference that comes when it has started; None once it has."""
    machines: frozenset[str] = frozenset()
    """The machines that there were when it began to start."""
    starts: int = 0
    """Number of its starts that failed, one after the other."""
    node: str = ""
    """The node it is on; empty while it has not started."""
    heard_at: float = 0.0
    """On the monotonic clock: when it last said something, or was given its first unit."""
    free_at: float = 0.0
    """Seconds since the epoch: when it was given its first unit, or finished one."""

    def add(self, unit: Any) -> None:
        """Send the actor a unit, which it comes to after those it has."""
        if not self.given:
            self.heard_at, self.free_at = time.monotonic(), time.time()
        self.given.append((self.give(unit, None), unit))

    def give(self, unit: Any, excluded: Mapping[str, str] | None) -> Any:
        """Send a unit to the actor; return a stream of its results, one reference after the other.

        An actor that is at it one sample at a time waits until each beat has come here: the last
        one tells of the sample that killed it.
        """
        careful = {} if excluded is None else {"_generator_backpressure_num_objects": 1}
        run = self.actor.run.options(num_returns="streaming", **careful)
        return run.remote(unit, excluded)

    def stretch(self, *, lost: bool = False) -> BusyInterval:
        """Its time with the unit it has just finished, or was at when it died."""
        start, self.free_at = self.free_at, time.time()
        return BusyInterval(worker=f"{id(self):x}", start_s=start, stop_s=self.free_at, lost=lost)

    def silence(self) -> float:
        """Seconds since it was last heard, which is now."""
        before, self.heard_at = self.heard_at, time.monotonic()
        return self.heard_at - before


def value(result: Any) -> Any:
    """A result, or the error it stands for."""
    if isinstance(result, Failure):
        if result.whole is not None:
            raise result.whole
        error = GlitError(result.message)
        error.exit_code = result.exit_code
        raise error
    return result
