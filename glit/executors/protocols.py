"""The interfaces of tasks, workers and executors: what runs stands apart from where it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

Unit = TypeVar("Unit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The counts of a finished unit of work."""

    rows: int
    drops: dict[str, int] = field(default_factory=dict)
    """Drops by reason."""


class Worker(Protocol):
    """An opened task: models loaded, ready for units."""

    def run(self, unit: Any, excluded: tuple[int, ...]) -> Tally:
        """Do a unit and publish its result; the excluded samples become ``worker_crash``."""
        ...

    def probe(self, unit: Any, start: int, stop: int) -> None:
        """Do samples [start, stop) of a unit without publishing, to see if the process survives."""
        ...

    def size(self, unit: Any) -> int:
        """How many samples a unit holds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a worker of a task needs of its machine."""

    memory_bytes: int
    """Roughly."""
    gpus: int = 0
    """More than one where a model is spread over several."""
    gpu_bytes: int = 0
    """Of a GPU's memory, roughly; 0 for a worker that wants the whole GPU."""
    units_at_once: int = 1
    """How many units it is at together, each in a thread of its own."""
    keeps_process: bool = True
    """Whether the process is fit for another task afterwards (an engine may not let go)."""


class Task(Protocol):
    """Work to be done on many units; picklable, opened in each worker."""

    @property
    def name(self) -> str: ...

    @property
    def needs(self) -> Needs: ...

    def open(self, threads: int) -> Worker:
        """Load models; the worker may decode with so many threads."""
        ...


class Executor(Protocol):
    """Runs a task over units."""

    @property
    def device(self) -> str:
        """The best device that its workers have: ``cuda``, ``mps`` or ``cpu``."""
        ...

    def run(self, task: Task, units: Sequence[Any], on_done: Callable[[Any, Tally], None]) -> None:
        """Do every unit; ``on_done`` is called in the driver, in the order units finish.

        Raises:
            GlitError: what the task raised, or a worker that keeps dying.
        """
        ...

    def close(self) -> None:
        """Stop all workers."""
        ...
