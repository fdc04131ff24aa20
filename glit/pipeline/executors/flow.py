"""Choose the units of several jobs that can be done now: what they wait for, who is at work."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from glit.pipeline.executors.protocols import Job


class JobFlow:
    """Jobs in the order of the flow, of which those in different places overlap.

    A job begins, the first of the flow first, when nothing is at work in its place and one of its
    units waits for nothing; one without units begins with the jobs before it.

    Args:
        jobs: with different names; what a job comes after stands before it.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = list(jobs)
        self._begun: set[str] = set()
        self._ended: set[str] = set()
        has = {job.task.name: {unit.index for unit in job.units} for job in jobs}
        self._waits = {
            job.task.name: Counter(
                {
                    unit.index: waits
                    for unit in job.units
                    if (waits := sum(unit.index in has.get(name, ()) for name in job.after))
                }
            )
            for job in jobs
        }
        self._ready = {
            job.task.name: deque(
                unit for unit in job.units if unit.index not in self._waits[job.task.name]
            )
            for job in jobs
        }
        self._later = {
            job.task.name: {unit.index: unit for unit in job.units if unit.index in waits}
            for job, waits in zip(jobs, self._waits.values(), strict=True)
        }

    def beginning(self) -> list[Job]:
        """Jobs that can begin now; they count as begun."""
        found = []
        for number, job in enumerate(self._jobs):
            name, before = job.task.name, self._jobs[:number]
            if name in self._begun:
                continue
            if job.units:
                begins = bool(self._ready[name]) and self._is_free_for(job)
            else:
                begins = all(other.task.name in self._begun for other in before)
            if begins:
                self._begun.add(name)
                found.append(job)
        return found

    def _is_free_for(self, job: Job) -> bool:
        """Return whether nothing is at work in its place, or has to be done there before."""
        return not any(
            name in self._begun or name in job.after
            for other in self._jobs
            if other.units
            and other.task.needs.place == job.task.needs.place
            and (name := other.task.name) not in self._ended
        )

    def ready(self, job: Job) -> deque[Any]:
        """The job's units that wait for nothing, first come first served; whoever takes one is to
        do it, and may put it back."""
        return self._ready[job.task.name]

    def waits(self, job: Job) -> bool:
        """Return whether units of the job wait for other jobs still."""
        return bool(self._later[job.task.name])

    def done(self, job: Job, unit: Any) -> None:
        """A unit is done: others may wait for it no more."""
        for other in self._jobs:
            name = other.task.name
            if job.task.name in other.after and unit.index in self._later[name]:
                self._waits[name][unit.index] -= 1
                if not self._waits[name][unit.index]:
                    self._ready[name].append(self._later[name].pop(unit.index))

    def end(self, job: Job) -> None:
        """All units of a job are done."""
        self._ended.add(job.task.name)
