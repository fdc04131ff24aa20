"""A stage once more over the samples it dropped, merged into the table it wrote before."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

from glit.data.records import Sample
from glit.executors.protocols import Heartbeat, Resources, Tally
from glit.pipeline.listing import Chunk
from glit.pipeline.stage_task import (
    StageTask,
    StageWorker,
    each_ingested,
    ingest_rows,
    part_of,
    with_heartbeats,
    write_table,
)
from glit.pipeline.tables import drops_by_reason
from glit.pipeline.work import Work
from glit.pipeline.worker_check import see_the_same
from glit.storage.store import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryUnit:
    """A chunk as it is now, and as it was when its tables were written."""

    now: Chunk
    before: Chunk

    @property
    def index(self) -> int:
        return self.now.index


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryTask:
    """A stage over the samples that have no result yet, or a drop that was asked for."""

    name: str
    work: Work
    selected: bool
    """Whether this stage's own drops are tried again."""
    reason: str | None

    @property
    def _stage(self) -> StageTask:
        return StageTask(name=self.name, work=self.work)

    @property
    def loads(self) -> str:
        return self._stage.loads

    @property
    def needs(self) -> Resources:
        return self._stage.needs

    def wanted(self, drop: dict[str, Any] | None) -> bool:
        """Whether a row with this drop is done again."""
        return self.selected and drop is not None and self.reason in (None, drop["reason"])

    def num_todo(self, unit: RetryUnit) -> int:
        """How many samples of a chunk are done again; reads no more than who was dropped."""
        if self.name == "ingest":
            drops = self.work.counts(self.name, [unit.before])[1]
            return sum(n for reason, n in drops.items() if self.wanted({"reason": reason}))
        reaching = {sample.sample_id for sample in self.work.ingested(unit.now)}
        for name in self.work.waits_for(self.name):
            outcomes = self.work.outcomes(name, unit.now)
            reaching = {each for each in reaching if each in outcomes and outcomes[each] is None}
        before = self.work.outcomes(self.name, unit.before)
        return sum(each not in before or self.wanted(before[each]) for each in reaching)

    def open(self, threads: int) -> RetryWorker:
        """Load the stage's model.

        Raises:
            GlitError: this machine does not see what the build began with.
        """
        see_the_same(self.work, self.name)
        return RetryWorker(self, threads)


class RetryWorker:
    """See :class:`glit.executors.protocols.Worker`."""

    def __init__(self, task: RetryTask, threads: int) -> None:
        self._task = task
        self._work = task.work
        self._stage: StageWorker | None = None
        if task.name != "ingest":
            opened = task.work.plan.flow.stages[task.name].open(task.work.plan)
            self._stage = StageWorker(task.name, task.work, opened, threads=threads)

    def run(
        self, unit: RetryUnit, excluded: Mapping[int, str]
    ) -> Generator[Heartbeat, None, Tally]:
        """Do what is wanted of a chunk; the merged table goes beside the finished one."""
        if self._stage is None:
            return (yield from self._ingest(unit, excluded))
        name = self._task.name
        before = self._work.rows(name, unit.before)
        samples = self._work.samples(name, unit.now)
        todo = self._todo(unit)
        if not todo and unit.now == unit.before:
            return Tally(rows=0)
        redone = yield from with_heartbeats(self._stage.rows(todo, excluded))
        fresh = {row["sample_id"]: row for row in redone}
        for sample_id, row in fresh.items():
            if row.get("drop") and sample_id in before:
                row["drop"]["attempt"] = (before[sample_id]["drop"] or {}).get("attempt", 0) + 1
        rows = [fresh.get(s.sample_id) or before[s.sample_id] for s in samples]
        write_table(self._work, name, unit.now, rows)
        return Tally(rows=len(todo), drops=drops_by_reason(redone))

    def _todo(self, unit: RetryUnit) -> list[Sample]:
        """The samples without a result, and those whose drop is tried again."""
        before = self._work.rows(self._task.name, unit.before)
        return [
            sample
            for sample in self._work.samples(self._task.name, unit.now)
            if sample.sample_id not in before or self._task.wanted(before[sample.sample_id]["drop"])
        ]

    def _ingest(
        self, unit: RetryUnit, excluded: Mapping[int, str]
    ) -> Generator[Heartbeat, None, Tally]:
        rows = self._work.ingest_rows(unit.before)
        wanted = self._wanted_rows(unit)
        if not wanted:
            return Tally(rows=0)
        fresh = yield from with_heartbeats(each_ingested(self._work, self._entries(unit), excluded))
        for index, row in zip(wanted, fresh, strict=True):
            if row.get("drop"):
                row["drop"]["attempt"] = rows[index]["drop"]["attempt"] + 1
            rows[index] = row
        write_table(self._work, "ingest", unit.before, rows)
        return Tally(rows=len(wanted), drops=drops_by_reason(fresh))

    def _wanted_rows(self, unit: RetryUnit) -> list[int]:
        rows = self._work.ingest_rows(unit.before)
        return [index for index, row in enumerate(rows) if self._task.wanted(row["drop"])]

    def _entries(self, unit: RetryUnit) -> list[Entry]:
        entries = self._work.entries(unit.before)
        return [entries[index] for index in self._wanted_rows(unit)]

    def probe(self, unit: RetryUnit, start: int, stop: int, excluded: Mapping[int, str]) -> None:
        """See :class:`glit.executors.protocols.Worker`."""
        if self._stage is None:
            ingest_rows(self._work, part_of(self._entries(unit), start, stop, excluded), {})
        else:
            list(self._stage.rows(part_of(self._todo(unit), start, stop, excluded), {}))

    def size(self, unit: RetryUnit) -> int:
        """See :class:`glit.executors.protocols.Worker`."""
        return len(self._entries(unit) if self._stage is None else self._todo(unit))
