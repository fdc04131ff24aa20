"""Running the stages of a build over the chunks that lack their tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pyarrow.parquet as pq

from glit.errors import DamagedTableError
from glit.executors.protocols import Executor, Job, Tally
from glit.pipeline.build_lock import LockCheck
from glit.pipeline.duplicates import chunks_before, forget_duplicates, leave_out_duplicates
from glit.pipeline.listing import Chunk
from glit.pipeline.stage_task import StageTask
from glit.pipeline.versions import note_versions
from glit.pipeline.work import Work
from glit.runtime.progress import StageProgress
from glit.stages.dedup import Duplicate
from glit.storage.store import Store

T = TypeVar("T")
_REPAIRS = 10
"""Tables found damaged in one run, after which the disk is not to be trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRunner:
    """A dataset whose work folder this process holds, who works there, and whom it tells."""

    dataset: Store
    work: Work
    executor: Executor
    progress: StageProgress
    still_held: LockCheck
    """Raises where another build has taken over."""

    def run(self, chunks: list[Chunk]) -> tuple[list[Chunk], list[Duplicate]]:
        """Run every stage over the chunks that lack its table.

        The first stage reads all of them; then duplicates are left out; then the others run.

        Returns:
            The chunks, which know their duplicates, and these.
        """
        work = self.work
        note_versions(work)
        first, *others = work.plan.flow.stages
        if work.missing(first, chunks):
            forget_duplicates(work)
        self.executor.run([self._job(first, chunks)])
        chunks, duplicates = leave_out_duplicates(work, chunks)
        if work.retry is not None:
            self._move_renamed(others, chunks)
        self.executor.run([self._job(stage, chunks) for stage in others])
        return chunks, duplicates

    def _move_renamed(self, stages: list[str], chunks: list[Chunk]) -> None:
        """Move tables aside whose chunk has other duplicates than before the retry, and with them
        another name: most of their rows can stay."""
        for now, before in zip(chunks, chunks_before(self.work, chunks), strict=True):
            for stage in stages if now.skip != before.skip else ():
                self.work.move_aside(stage, before)

    def _job(self, stage: str, chunks: list[Chunk]) -> Job:
        """A stage over the chunks that lack its table; what later stages made of them goes."""
        work, still_held = self.work, self.still_held
        missing = work.missing(stage, chunks)
        if missing:
            work.forget_after(stage, missing)
        # images as the listing has them; later stages see a few less
        listing = pq.read_metadata(work.store.for_arrow("listing.parquet"))
        per_chunk = {c.index: listing.row_group(c.index).num_rows - len(c.skip) for c in chunks}
        total = sum(per_chunk.values())
        todo = sum(per_chunk[chunk.index] for chunk in missing)
        told = self.progress.beside()

        def done(chunk: Chunk, tally: Tally) -> None:
            still_held()
            told.finished(chunk, per_chunk[chunk.index], sum(tally.drops.values()))

        return Job(
            task=StageTask(name=stage, work=work),
            units=missing,
            on_done=done,
            after=work.waits_for(stage),
            begin=lambda: told.begin(stage, total=total, done=total - todo),
            watch=told,
        )

    def repairing(self, run: Callable[[], T]) -> T:
        """``run()``; a table found damaged is removed before it runs again, which makes it anew.

        Raises:
            DamagedTableError: there is no end of them.
        """
        for _ in range(_REPAIRS):
            try:
                return run()
            except DamagedTableError as error:
                self.progress.note(f"{error.table} is damaged ({error.reason}); it is made anew")
                self.work.store.remove(error.table)
                forget_duplicates(self.work)
        return run()
