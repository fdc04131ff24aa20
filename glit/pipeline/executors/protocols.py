"""The interfaces of tasks, workers and executors: what runs stands apart from where it runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

Unit = TypeVar("Unit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The counts of a finished unit of work."""

    rows: int
    drops: dict[str, int] = field(default_factory=dict)
    """Drops by reason."""
    tokens: int = 0
    """Tokens of prompts and answers that were used for the unit, in earlier runs too."""
    tokens_before: int = 0
    """Those of them that earlier runs used."""
    requests_repeated: int = 0
    """Requests that were sent again in this run because a server did not answer them."""
    gpu: str = ""
    """Name of the GPU that the worker used; empty if it used none in its own process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The progress of a worker in a unit that it has not finished."""

    rows: int
    drops: int
    gpu_memory: tuple[int, int] | None = None
    """Bytes in use on its GPU, and bytes that the GPU has."""
    at: str = ""
    """Key of the sample that comes next, of a unit that is done one sample at a time."""


class Watch(Protocol):
    """An observer of an executor; it decides nothing."""

    def loading(self, model: str) -> None:
        """Workers start and load this model; the empty text for none."""
        ...

    def ready(self) -> None:
        """They are at work."""
        ...

    def moved(self, unit: Any, beat: Heartbeat) -> None:
        """A unit is so far; less than before when it was begun anew."""
        ...


class NullListener:
    """Nobody is told."""

    def loading(self, model: str) -> None:
        """See :class:`Watch`."""

    def ready(self) -> None:
        """See :class:`Watch`."""

    def moved(self, unit: Any, beat: Heartbeat) -> None:
        """See :class:`Watch`."""


class Worker(Protocol):
    """An opened task: models loaded, ready for units."""

    def run(
        self, unit: Any, excluded: Mapping[str, str] | None
    ) -> Generator[Heartbeat, None, Tally]:
        """Do a unit and publish its result; yield a beat after a batch, a few a second at most.

        Args:
            unit: to do.
            excluded: of a unit that kills workers, which is done one sample at a time, each after a
                beat that names it: the samples that are not touched and dropped, each for its
                reason, ``worker_crash`` or ``timeout``. None for all other units.
        """
        ...


Place = Literal["cpu", "cuda", "mps", "server"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The resources of a machine that a worker of a task needs."""

    memory_bytes: int
    """Roughly."""
    place: Place = "cpu"
    """The place where the work is done. Tasks in different places are done at the same time, those
    in one place after each other, so that two models never share it. A ``server`` is another
    machine."""
    gpus: int = 0
    """More than one where a model is spread over several."""
    gpu_bytes: int = 0
    """Bytes of a GPU's memory, roughly; 0 for a worker that wants the whole GPU."""
    units_at_once: int = 1
    """Number of units that it is at together, each in a thread of its own."""
    longest_wait_s: float = 0.0
    """Longest time in seconds that it may wait for another machine and still go on."""
    keeps_process: bool = True
    """True if the process is fit for another task afterwards (an engine may not let go)."""


class Task(Protocol):
    """Work to be done on many units; picklable, opened in each worker."""

    @property
    def name(self) -> str: ...

    @property
    def loads(self) -> str:
        """The model that opening it waits for; empty for none."""
        ...

    @property
    def needs(self) -> Resources: ...

    def open(self, threads: int) -> Worker:
        """Load models; the worker may decode with so many threads."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyInterval:
    """A worker's time with a unit, in seconds since the epoch."""

    worker: str
    """Its place in the pool, which another takes when it dies."""
    start_s: float
    stop_s: float
    lost: bool = False
    """The worker died at it, so that another has to do it again."""


def _nothing(*_: Any) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A task over units, perhaps one of several; who is told of it is called in the driver."""

    task: Task
    units: Sequence[Any]
    """Each has an ``index``."""
    on_done: Callable[[Any, Tally], None] = _nothing
    """In the order units finish."""
    after: Collection[str] = ()
    """Names of all tasks that do a unit of the same index first, where they have it; also those
    that one of them comes after."""
    begin: Callable[[], None] = _nothing
    """Before its workers start."""
    watch: Watch = field(default_factory=NullListener)
    worked: Callable[[BusyInterval], None] = _nothing
    """When a unit is done."""


class Executor(Protocol):
    """Runs tasks over units."""

    @property
    def device(self) -> str:
        """The best device that its workers have: ``cuda``, ``mps`` or ``cpu``."""
        ...

    @property
    def size(self) -> tuple[int, int]:
        """The cores and the GPUs that it may use."""
        ...

    def run(self, jobs: Sequence[Job]) -> None:
        """Do every unit of every job.

        Raises:
            GlitError: what the task raised, or a worker that keeps dying.
        """
        ...

    def close(self) -> None:
        """Stop all workers."""
        ...
