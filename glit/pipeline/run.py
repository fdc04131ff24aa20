"""Run every step over an open work folder, and publish.

Between the first step and the others, images that repeat others are left out. That needs the first
step's tables of all chunks at once. They are searched once, and what was found is kept in the work
folder.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace

import pyarrow as pa
import pyarrow.parquet as pq

from glit.data.schema import DUPLICATES_SCHEMA
from glit.dataset.manifest import Manifest
from glit.errors import DamagedTableError, RunError, StoppedError, UserError, closest
from glit.pipeline.executors.protocols import BusyInterval, Job, Tally
from glit.pipeline.publish import publish
from glit.pipeline.stage_task import StageTask
from glit.pipeline.work.finished import not_finished
from glit.pipeline.work.folder import Work
from glit.pipeline.work.listing import Chunk, Twins, labels_in_listing
from glit.pipeline.work.open_work import OpenWork
from glit.pipeline.work.state import note_versions
from glit.pipeline.work.tables import (
    drops_by_reason,
    read_table,
    sum_tokens,
    tables_ahead,
    write_table,
)
from glit.runtime.limits import ALL, drops_word
from glit.stages import all_reasons
from glit.stages.dedup import Duplicate, find_duplicates
from glit.stages.ingest import Ingest, IngestConfig

_FEWEST_COUNTED = 100
_DUPLICATES = "duplicates-"
_SCHEMA = pa.schema(
    [
        ("chunk", pa.int64()),
        ("row", pa.int64()),
        *DUPLICATES_SCHEMA,
        ("kept_chunk", pa.int64()),
        ("kept_row", pa.int64()),
        ("labels", pa.string()),
    ]
)


def run_and_publish(opened: OpenWork, chunks: list[Chunk], *, appending: bool = False) -> Manifest:
    """Run the stages and publish what they made; the manifest. What is found damaged is made anew.

    Raises:
        GlitError: see :func:`glit.pipeline.publish.publish`; what is done stays done.
    """
    while True:
        try:
            now, duplicates = run_stages(opened, chunks)
            return publish(opened, now, duplicates, appending=appending)
        except DamagedTableError as error:
            opened.repair(error)


def run_stages(opened: OpenWork, chunks: list[Chunk]) -> tuple[list[Chunk], list[Duplicate]]:
    """Run every stage over the chunks that lack its table.

    The first stage reads all of them; then duplicates are left out; then the others run.

    Returns:
        The chunks, which know their duplicates, and these.
    """
    work = opened.work
    for reason in opened.limits.shares.keys() - {ALL, *all_reasons()}:
        raise UserError(f"--max-drops {reason}: no such reason; {closest(reason, all_reasons())}")
    note_versions(work.store, work.plan.recipe)
    chunks, duplicates = run_first_stage(opened, chunks)
    tokens = _token_limit(opened, chunks)
    _, *others = work.plan.flow.stages
    opened.executor.run([_job(opened, stage, chunks, tokens) for stage in others])
    return chunks, duplicates


def run_first_stage(opened: OpenWork, chunks: list[Chunk]) -> tuple[list[Chunk], list[Duplicate]]:
    """Run the stage that reads all images; the chunks, which then know their duplicates, and
    these."""
    work = opened.work
    first, *_ = work.plan.flow.stages
    if work.missing(first, chunks):
        for name in work.store.names():  # those found in the tables of before
            if name.startswith(_DUPLICATES):
                work.store.remove(name)
    opened.executor.run([_job(opened, first, chunks)])
    return leave_out_duplicates(work, chunks)


def _job(
    opened: OpenWork, stage: str, chunks: list[Chunk], tokens: _TokenLimit | None = None
) -> Job:
    """A stage over the chunks that lack its table; what later stages made of them goes."""
    work, still_held = opened.work, opened.still_held
    missing = work.missing(stage, chunks)
    if missing:
        work.forget_after(stage, missing)
    per_chunk = _samples(work, chunks)  # later stages see a few less
    total = sum(per_chunk.values())
    todo = sum(per_chunk[chunk.index] for chunk in missing)
    told, task = opened.progress.beside(), StageTask(name=stage, work=work)
    limit = _drop_limit(opened, stage, chunks, missing)
    record = opened.timeline.recorder(task, missing)

    def worked(interval: BusyInterval) -> None:
        record(interval)
        if interval.lost:
            told.lost()

    def done(chunk: Chunk, tally: Tally) -> None:
        still_held()
        repeated = tally.requests_repeated
        told.finished(chunk, per_chunk[chunk.index], tally.drops, requests_repeated=repeated)
        opened.timeline.note_gpu(tally.gpu)
        if limit is not None:
            limit.count(tally)
        if tokens is not None:
            tokens.count(stage, per_chunk[chunk.index], tally)
        opened.check_time()

    return Job(
        task=task,
        units=missing,
        on_done=done,
        after=work.waits_for(stage),
        begin=lambda: told.begin(stage, total=total, done=total - todo),
        watch=told,
        worked=worked,
    )


def _drop_limit(
    opened: OpenWork, stage: str, chunks: list[Chunk], missing: list[Chunk]
) -> _DropLimit | None:
    """The limit of a step, which has counted the chunks that are done; of an addition, its own.

    Raises:
        RunError: too many of these were dropped, so the same command stops there again.
        DamagedTableError: of one of their tables.
    """
    work = opened.work
    shares = opened.limits.shares
    if min(shares.values(), default=1) >= 1 or work.plan.flow.step(stage).filters:
        return None
    todo = {chunk.index for chunk in missing}
    done = [c for c in chunks if c.series == chunks[-1].series and c.index not in todo]
    limit = _DropLimit(stage, shares, chunks=len(done) + len(missing))
    for chunk in done:
        rows = read_table(work.store, work.table(stage, chunk), ["drop"]).to_pylist()
        limit.count(Tally(rows=len(rows), drops=drops_by_reason(rows)))
    return limit


class _TokenLimit:
    """Stops a build whose models have written as much as the user pays for.

    Args:
        most: tokens of prompts and answers.
        used: tokens of earlier runs.
        left: images that are still to be done, of every stage whose model counts its tokens.

    Raises:
        UserError: there is no such stage.
        StoppedError: the tokens are used up, and images are left.
    """

    def __init__(self, most: int, used: int, left: dict[str, int]) -> None:
        if not left:
            raise UserError("--max-tokens: no stage of this recipe has a model that counts tokens")
        self._most, self._used, self._left = most, used, left
        self._stop_if_used()

    def count(self, stage: str, samples: int, tally: Tally) -> None:
        """Count a chunk of so many images.

        Raises:
            StoppedError: the tokens are used up, and images are left.
            RunError: the model does not say what it uses.
        """
        if stage not in self._left:
            return
        self._left[stage] -= samples
        self._used += tally.tokens - tally.tokens_before
        if not tally.tokens and tally.rows > sum(tally.drops.values()):
            raise RunError(
                f"--max-tokens: the model of stage {stage} does not say how many tokens it used "
                "(a server says it in usage.total_tokens); leave the option out, or use another"
            )
        self._stop_if_used()

    def _stop_if_used(self) -> None:
        left = ", ".join(f"{name} {number}" for name, number in self._left.items() if number)
        if left and self._used >= self._most:
            raise StoppedError(
                f"stopped after {self._used} tokens, by --max-tokens {self._most}; images left: "
                f"{left}; to go on, run the same command with a larger number"
            )


def _token_limit(opened: OpenWork, chunks: list[Chunk]) -> _TokenLimit | None:
    """The limit of a run over the chunks without duplicates, if the user sets one."""
    work, left, names = opened.work, dict[str, int](), list[str]()
    if opened.limits.tokens is None:
        return None
    for stage in work.plan.flow.later_stages:
        backend = work.plan.flow.step(stage).backend(work.plan.configs[stage])
        if backend is not None and backend.counts_tokens:
            folder, sizes = work.plan.folder(stage), _samples(work, chunks)
            missing = {chunk.index for chunk in work.missing(stage, chunks)}
            # the table of a chunk that is finished counts what its rows so far did
            again = {work.so_far(stage, c) for c in chunks if c.index not in missing}
            tables = {f"{folder}/{name}" for name in work.store.names(folder)}
            names += sorted(tables - again)
            left[stage] = sum(sizes[index] for index in missing)
    return _TokenLimit(opened.limits.tokens, sum_tokens(work.store, names), left)


def _samples(work: Work, chunks: list[Chunk]) -> dict[int, int]:
    """The images of every chunk as the listing has them, without duplicates."""
    listing = pq.read_metadata(work.store.for_arrow("listing.parquet"))
    return {c.index: listing.row_group(c.index).num_rows - len(c.skip) for c in chunks}


class _DropLimit:
    """Ends a step that drops more of its samples than the user allows."""

    def __init__(self, stage: str, shares: Mapping[str, float], *, chunks: int) -> None:
        """Start with a step over so many chunks; the shares are :attr:`Limits.shares`."""
        self._stage, self._shares, self._left = stage, shares, chunks
        self._rows, self._drops = 0, Counter[str]()

    def count(self, tally: Tally) -> None:
        """Count a chunk.

        Raises:
            RunError: of the samples so far, too many were dropped.
        """
        self._left -= 1
        self._rows += tally.rows
        self._drops.update(tally.drops)
        if self._left and self._rows < _FEWEST_COUNTED:
            return
        for reason, share in self._shares.items():
            dropped = self._drops.total() if reason == ALL else self._drops[reason]
            if dropped <= share * self._rows:
                continue
            most = self._drops.most_common(3) if reason == ALL else [(reason, dropped)]
            told = ", ".join(f"{number} {name}" for name, number in most)
            raise RunError(
                f"stage {self._stage}: {dropped} of {self._rows} samples were dropped ({told}), "
                f"more than --max-drops {drops_word({reason: share})}; what is done is kept; with "
                "a larger share it goes on, and glit retry then tries the dropped samples again"
            )


def leave_out_duplicates(work: Work, chunks: list[Chunk]) -> tuple[list[Chunk], list[Duplicate]]:
    """The chunks without duplicates, and the list of these. All ingest tables must be there.

    Raises:
        DamagedTableError: of an ingest table.
        RunError: the disk is full or cannot be written to.
    """
    found = _read_duplicates(work, name := _duplicates(work, chunks))
    if found is None:
        spill = work.store.full("") if work.store.is_local else None
        near_bits = work.plan.config(IngestConfig).near_duplicates
        read = tables_ahead(work.store, (work.table(Ingest.name, chunk) for chunk in chunks))
        labels = labels_in_listing(work.store.for_arrow("listing.parquet"), chunks)
        tables = (
            (chunk.index, _joined(table, own))
            for chunk, table, own in zip(chunks, read, labels, strict=True)
        )
        found = find_duplicates(tables, near_bits=near_bits, spill=spill)
        rows = pa.Table.from_pylist([asdict(each) for each in found], schema=_SCHEMA)
        write_table(work.store, name, rows)
    return _without(chunks, found), found


def _joined(table: pa.Table, labels: pa.Table) -> pa.Table:
    for name in labels.column_names:
        table = table.append_column(name, labels[name])
    return table


def require_finished(work: Work, listed: list[Chunk], *, wanted_by: str) -> None:
    """Refuse to go on if a stage has not done all chunks.

    Raises:
        UserError: it has not.
    """
    first, *others = work.plan.flow.stages
    if not work.missing(first, listed):
        chunks, _ = leave_out_duplicates(work, listed)
        if not any(work.missing(name, chunks) for name in others):
            return
    raise not_finished(work.store, wanted_by=wanted_by)


def _without(chunks: list[Chunk], found: list[Duplicate]) -> list[Chunk]:
    skips: dict[int, list[int]] = {}
    twins: dict[int, dict[int, list[Duplicate]]] = {}
    for duplicate in found:
        skips.setdefault(duplicate.chunk, []).append(duplicate.row)
        if duplicate.labels:
            of_chunk = twins.setdefault(duplicate.kept_chunk, {})
            of_chunk.setdefault(duplicate.kept_row, []).append(duplicate)
    return [
        replace(
            each,
            skip=tuple(sorted(skips.get(each.index, ()))),
            twins=tuple(
                Twins(
                    row=row,
                    sample_id=own[0].sample_id,
                    paths=tuple(twin.source_path for twin in own),
                    labels=tuple(twin.labels for twin in own),
                )
                for row, own in sorted(twins.get(each.index, {}).items())
            ),
        )
        for each in chunks
    ]


def _duplicates(work: Work, chunks: list[Chunk]) -> str:
    """Name of the table of duplicates, by the names of the tables that they are found in, and by
    the captions and regions of their images."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(f"{work.table(Ingest.name, chunk)} {' '.join(chunk.beside)}".encode())
    return f"{_DUPLICATES}{digest.hexdigest()[:12]}.parquet"


def _read_duplicates(work: Work, name: str) -> list[Duplicate] | None:
    try:
        return [Duplicate(**row) for row in read_table(work.store, name).to_pylist()]
    except DamagedTableError:  # or not there
        return None
