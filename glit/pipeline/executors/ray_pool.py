"""The actors of one job on Ray: they are started, given units, and replaced when they die."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError

from glit.errors import RunError, first_line
from glit.pipeline.executors.hang_timeout import HangTimeout
from glit.pipeline.executors.protocols import Heartbeat, Job, Tally
from glit.pipeline.executors.ray_actor import DEAD, Slot, end, is_alive, machines, value
from glit.pipeline.executors.ray_suspect import CrashIsolation

_START_FAILURES = 3
_DEATHS_IN_A_ROW = 8
"""And four for each worker, without a unit finished between them, end a stage."""


Kind = tuple[float, float, int]
"""The kind of an actor: processor cores and GPUs that it asks for, units that it is at together."""


class Pool:
    """The workers of a job, and the units they have.

    Args:
        job: what they do.
        kind: of their actors.
        ready: the units that can be done now; more may come.
        actors: of an earlier job, to be used again.
        new_actor: makes one more.
        threads: that each may decode with.
        patience: with their silence.
        on_done: is told of every unit that is done.
    """

    def __init__(
        self,
        job: Job,
        kind: Kind,
        ready: deque[Any],
        actors: list[Any],
        new_actor: Callable[[], Any],
        threads: int,
        patience: HangTimeout,
        on_done: Callable[[Any], None],
    ) -> None:
        self.job, self.kind = job, kind
        self._task = job.task
        self._ready = ready
        self._new_actor = new_actor
        self._threads = threads
        self._patience = patience
        self._on_done = on_done
        self._slots = [self._opening(Slot(actor)) for actor in actors]
        self._is_at_work = False
        self._blamed: list[Any] = []
        self._suspects: list[Any] = []
        self._deaths = 0

    @property
    def size(self) -> int:
        return len(self._slots)

    @property
    def busy(self) -> bool:
        """True if there is something to do now."""
        return bool(self._ready or self._suspects or any(slot.given for slot in self._slots))

    @property
    def longest_silence_s(self) -> float:
        """After which a worker is ended."""
        return self._patience.limit_s

    def resize(self, number: int) -> None:
        """Up to so many workers, one at least; fewer only where one has not started yet."""
        waiting = [slot for slot in self._slots if slot.opening is not None]
        for slot in waiting[: max(0, self.size - max(1, number))]:
            end(slot.actor)
            self._slots.remove(slot)
        while self.size < max(1, number):
            self._slots.append(self._opening(Slot(self._new_actor())))

    def give(self) -> None:
        """Units to workers: one to each, then the next, that none need wait for the driver."""
        for number in range(1, self._task.needs.units_at_once + 2):
            for slot in self._slots:
                if self._ready and slot.opening is None and len(slot.given) < number:
                    slot.add(self._ready.popleft())

    def streams(self) -> dict[Any, Callable[[], None]]:
        """Return the references that are waited for, and the call to make when each is there."""
        found: dict[Any, Callable[[], None]] = {}
        for slot in self._slots:
            if slot.opening is not None:
                found[slot.opening] = partial(self._opened, slot)
            for stream, unit in islice(slot.given, self._task.needs.units_at_once):
                found[stream] = partial(self._heard, slot, stream, unit)
        return found

    def _opening(self, slot: Slot) -> Slot:
        slot.machines = machines()
        slot.opening = slot.actor.open.remote(self._task, self._threads)
        return slot

    def _opened(self, slot: Slot) -> None:
        try:
            slot.node = value(ray.get(slot.opening))
        except DEAD as error:
            if not self._is_excused(slot, error, started=False):
                self._count_start(slot, error)
            self._renew(slot)
            return
        slot.opening, slot.starts = None, 0
        if not self._is_at_work:
            self._is_at_work = True
            self.job.watch.ready()

    def _count_start(self, slot: Slot, error: Exception) -> None:
        slot.starts += 1
        if slot.starts == _START_FAILURES:
            raise RunError(
                f"stage {self._task.name}: its worker dies while starting, {_START_FAILURES} "
                f"times in a row ({first_line(error)}); is there enough memory for the model?"
            ) from error

    def _heard(self, slot: Slot, stream: Any, unit: Any) -> None:
        if not any(stream is each for each, _ in slot.given):
            return  # its worker died at another of its units, and gave this one back
        try:
            told = value(ray.get(next(stream)))
        except DEAD as error:
            self._died(slot, error)
            return
        self._patience.heard(slot.silence())
        if isinstance(told, Heartbeat):
            self.job.watch.moved(unit, told)
            return
        slot.given.remove((stream, unit))
        self._deaths = 0
        self.job.worked(slot.stretch())
        self._finish(unit, told)

    def _finish(self, unit: Any, tally: Tally) -> None:
        self.job.on_done(unit, tally)
        self._on_done(unit)

    def _died(self, slot: Slot, error: Exception) -> None:
        unit = self._take_back(slot)
        self.job.worked(slot.stretch(lost=True))
        if self._is_excused(slot, error, started=True):
            self._ready.appendleft(unit)
        else:
            self._deaths += 1
            self._stop_endless(error)
            if any(unit is other for other in self._blamed):
                self._suspects.append(unit)
            else:
                self._blamed.append(unit)
                self._ready.append(unit)
        self._renew(slot)

    def _renew(self, slot: Slot) -> None:
        end(slot.actor)
        slot.actor = self._new_actor()
        self._opening(slot)

    @staticmethod
    def _is_excused(slot: Slot, error: Exception | None, *, started: bool) -> bool:
        """Return whether a worker was lost with its machine, or the way to it was: no unit's doing,
        nor that of the model it loads.

        Args:
            slot: where it was.
            error: what Ray said.
            started: whether it is known what machine it was on.
        """
        if isinstance(error, ActorUnavailableError) and is_alive(slot.actor):
            return True
        there = machines()
        return slot.node not in there if started else not slot.machines <= there

    def _take_back(self, slot: Slot) -> Any:
        """The unit the dead actor was at; what had only been waiting there goes back first."""
        _, unit = slot.given.popleft()
        while slot.given:
            self._ready.appendleft(slot.given.pop()[1])
        return unit

    def _stop_endless(self, error: Exception) -> None:
        if self._deaths > _DEATHS_IN_A_ROW + 4 * self.size:
            raise RunError(
                f"stage {self._task.name}: {self._deaths} workers died one after the other and "
                f"none of them finished anything ({first_line(error)}); what is done is kept, "
                "once fixed, run the same command again"
            ) from error

    def end_silent(self) -> None:
        """Kill workers that have said nothing for too long; what comes of it is a death."""
        for slot in self._slots:
            if slot.given and time.monotonic() - slot.heard_at > self._patience.limit_s:
                end(slot.actor)

    def excuse(self) -> None:
        """Nobody listened for a while: no worker's silence counts until now."""
        for slot in self._slots:
            slot.heard_at = time.monotonic()

    def try_suspect(self) -> bool:
        """Do one of the units that killed two workers, alone, if nothing else is left.

        Return whether there was one, when it is done.
        """
        started = [slot for slot in self._slots if slot.opening is None]
        if self._ready or not self._suspects or any(s.given for s in self._slots) or not started:
            return False
        unit, slot = self._suspects.pop(), started[0]
        replace = partial(self._replace, slot)
        suspect = CrashIsolation(self._task, unit, slot, self._patience, replace)
        self._finish(unit, suspect.run())
        return True

    def _replace(self, slot: Slot, error: Exception | None) -> bool:
        """A fresh worker in the slot, waited for; whether the last was lost with its machine."""
        excused = self._is_excused(slot, error, started=True)
        while True:
            self._renew(slot)
            try:
                slot.node = value(ray.get(slot.opening))
            except DEAD as failed:
                if not self._is_excused(slot, failed, started=False):
                    self._count_start(slot, failed)
                continue
            slot.opening, slot.starts = None, 0
            return excused

    def release(self) -> list[Any]:
        """The actors that are fit for another job; the others are ended."""
        if not self._task.needs.keeps_process:
            self.kill()
            return []
        kept = [slot.actor for slot in self._slots if slot.opening is None]
        for slot in self._slots:
            if slot.opening is not None:
                end(slot.actor)
        return kept

    def kill(self) -> None:
        """End all workers."""
        for slot in self._slots:
            end(slot.actor)
