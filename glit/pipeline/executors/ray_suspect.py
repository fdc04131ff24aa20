"""A unit that killed two workers, alone with a third: done without the samples that kill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray

from glit.errors import RunError
from glit.pipeline.executors.hang_timeout import HangTimeout
from glit.pipeline.executors.protocols import Tally, Task
from glit.pipeline.executors.ray_actor import DEAD, Slot, value


@dataclass(frozen=True, slots=True)
class _Death:
    """A worker's death: the key of the sample it was at, and the reason that is dropped for."""

    at: str
    cause: str


class CrashIsolation:
    """The unit, which is done one sample at a time: where its worker dies is the killer.

    Args:
        task: what is done with it.
        unit: the unit.
        slot: of an idle worker.
        patience: with that worker's silence.
        replace: puts a fresh worker into the slot, given what the last was lost by; whether that
            was with its machine, which no sample is to blame for.
    """

    def __init__(
        self,
        task: Task,
        unit: Any,
        slot: Slot,
        patience: HangTimeout,
        replace: Callable[[Exception | None], bool],
    ) -> None:
        self._task, self._unit, self._slot = task, unit, slot
        self._patience, self._replace = patience, replace

    def run(self) -> Tally:
        """Its tally.

        Raises:
            RunError: it kills its worker, and not while a sample is at work.
        """
        excluded: dict[str, str] = {}
        unexplained = 0
        while isinstance(end := self._attempt(excluded), _Death):
            if end.at and end.at not in excluded:
                excluded[end.at] = end.cause
                continue
            unexplained += 1  # once may be of the machine's doing
            if unexplained > 1:
                raise RunError(
                    f"stage {self._task.name}: chunk {getattr(self._unit, 'index', '?')} kills its "
                    "worker, but none of its samples does so (memory?); run the same command again "
                    "with more memory for each worker"
                )
        return end

    def _attempt(self, excluded: dict[str, str]) -> Tally | _Death:
        stream, at = self._slot.give(self._unit, excluded), ""
        while True:
            ready, _ = ray.wait([stream], timeout=self._patience.limit_s)
            try:
                told = value(ray.get(next(stream))) if ready else None
            except DEAD as error:
                if self._replace(error):
                    stream, at = self._slot.give(self._unit, excluded), ""
                    continue
                return _Death(at, "worker_crash")
            if told is None:
                self._replace(None)
                return _Death(at, "timeout")
            if isinstance(told, Tally):
                return told
            at = told.at
