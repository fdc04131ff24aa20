"""A unit that killed two workers, alone with a third: done without the samples that kill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError

from glit.errors import RunError
from glit.executors.crash_bisect import HangTimeout, first_killer
from glit.executors.protocols import Tally, Task
from glit.executors.ray_actor import DEAD, Slot, value


@dataclass(frozen=True, slots=True)
class _Death:
    """A worker's death: the rows of its unit done before, and the reason a sample is dropped
    for."""

    rows: int
    cause: str


class CrashIsolation:
    """The unit and what is known of it.

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
        self._excluded: dict[int, str] = {}
        self._cause = ""

    def run(self) -> Tally:
        """Its tally.

        Raises:
            RunError: it kills its worker as a whole, and no sample does so alone.
        """
        size = value(ray.get(self._slot.actor.size.remote(self._unit)))
        unexplained = 0
        while isinstance(told := self._attempt(), _Death):
            self._cause = told.cause
            killer = first_killer(told.rows, size, self._kills)
            if killer is not None:
                self._excluded[killer] = self._cause
                continue
            unexplained += 1  # once may be of the machine's doing
            if unexplained > 1:
                raise RunError(
                    f"stage {self._task.name}: chunk {getattr(self._unit, 'index', '?')} kills its "
                    f"worker, but none of its {size} samples does so alone (memory?); lower "
                    f"{self._task.name}.batch_size and run the same command again"
                )
        return told

    def _attempt(self) -> Tally | _Death:
        stream, rows = self._slot.give(self._unit, self._excluded), 0
        while True:
            ready, _ = ray.wait([stream], timeout=self._patience.limit_s)
            try:
                told = value(ray.get(next(stream))) if ready else self._end()
            except DEAD as error:
                if self._replace(error):
                    stream, rows = self._slot.give(self._unit, self._excluded), 0
                    continue
                return _Death(rows, "worker_crash")
            if told is None:
                return _Death(rows, "timeout")
            if isinstance(told, Tally):
                return told
            rows = told.rows

    def _kills(self, start: int, stop: int) -> bool:
        """Return whether these samples kill their worker; why is kept."""
        probing = self._slot.actor.probe.remote(self._unit, start, stop, self._excluded)
        try:
            value(ray.get(probing, timeout=self._patience.limit_s))
        except GetTimeoutError:
            self._end()
            self._cause = "timeout"
        except DEAD as error:
            if self._replace(error):
                return self._kills(start, stop)
            self._cause = "worker_crash"
        else:
            return False
        return True

    def _end(self) -> None:
        """End the worker, which is silent."""
        self._replace(None)
