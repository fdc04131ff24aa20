"""The work folder: stage tables by chunk, and what is done.

    work/listing.parquet                               the input, one row group a chunk
    work/<stage>-<fingerprint>/000012-<key>.parquet    a stage's table for a chunk
    work/ledger-<fingerprint>/000012-<key>.parquet     see :mod:`glit.work.ledger`

A table that exists is complete; nothing else says what is done.

A retry moves the tables of the chunks that it concerns aside, to ``000012-<key>.before``. They are
missing then, so they are made again like any other, but for the rows of those that can stay.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow.parquet as pq

from glit.data.records import Sample
from glit.errors import DamagedTableError
from glit.stages.ingest import Ingest
from glit.stages.plan import Plan
from glit.storage.store import Entry, Store
from glit.work.listing import Chunk, open_listing, read_chunk
from glit.work.state import Retry
from glit.work.tables import read_table, stage_table, write_table

T = TypeVar("T")
BEFORE = ".before"
"""Ending of the names of tables that a retry moved aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A build's work folder, images and plan. Picklable; workers get a copy."""

    store: Store
    """The work folder."""
    images: Store
    """The ingest root."""
    plan: Plan
    retry: Retry | None = None
    """The retry that is going on."""

    def table(self, stage: str, chunk: Chunk) -> str:
        """Path of a stage's table for a chunk."""
        whole, partial = self._names(stage, chunk)
        is_whole = not partial or self.store.exists(f"{self.plan.folder(stage)}/{whole}")
        return f"{self.plan.folder(stage)}/{whole if is_whole else partial}"

    def _names(self, stage: str, chunk: Chunk) -> tuple[str, str]:
        """File name of a table, and that of one without the samples that other stages dropped;
        empty where there are no such stages."""
        found = bool(self.plan.flow.upstream[stage])  # the first step knows of no duplicates
        name = f"{chunk.index:06d}-{_key(chunk, self._beside(stage, chunk), duplicates=found)}"
        reading = dict(zip(self.plan.beside, chunk.beside, strict=True))
        skipped = [reading.get(other, "") for other in self.skips_drops_of(stage)]
        if not skipped:
            return f"{name}.parquet", ""
        digest = hashlib.sha256(" ".join(skipped).encode()).hexdigest()[:12]
        return f"{name}.parquet", f"{name}_{digest}.parquet"

    def so_far(self, stage: str, chunk: Chunk) -> str:
        """Return where the rows of a slow stage are kept until its chunk is finished."""
        key = _key(chunk, self._beside(stage, chunk))
        return f"{self.plan.folder(stage)}/{chunk.index:06d}-{key}.so-far.parquet"

    def keep(self, stage: str, chunk: Chunk, rows: list[dict[str, Any]], tokens: int = 0) -> None:
        """Add rows to those kept of a chunk that is not finished.

        Args:
            stage: its name.
            chunk: the chunk.
            rows: without drops.
            tokens: that were used for the chunk so far, in earlier runs too.
        """
        name, kept = self.so_far(stage, chunk), []
        if self.store.exists(name):
            with contextlib.suppress(DamagedTableError):
                kept = read_table(self.store, name).to_pylist()
        found = {row["sample_id"]: row for row in [*kept, *rows]}
        columns = self.plan.flow.step(stage).columns
        write_table(self.store, name, stage_table(columns, list(found.values()), tokens))

    def table_before(self, stage: str, chunk: Chunk) -> str:
        """Return where a retry moves a table, whichever images are duplicates."""
        key = _key(chunk, self._beside(stage, chunk), duplicates=False)
        return f"{self.plan.folder(stage)}/{chunk.index:06d}-{key}{BEFORE}"

    def move_aside(self, stage: str, chunk: Chunk) -> None:
        """Move a table to where the retry finds the rows of before, if it is still in its place."""
        if self.store.exists(name := self.table(stage, chunk)):
            self.store.move(name, self.table_before(stage, chunk))

    def was_moved_aside(self, stage: str, chunk: Chunk) -> bool:
        """Return whether the retry that is going on has rows of a chunk from before."""
        return self.retry is not None and self.store.exists(self.table_before(stage, chunk))

    def partial_tables(self, stage: str) -> dict[str, list[str]]:
        """Names of tables that hold only some of a chunk's samples, by the beginning that they
        share with the chunk's whole table."""
        found: dict[str, list[str]] = {}
        for name in self.store.names(self.plan.folder(stage)):
            shared, mark, _ = name.removesuffix(".parquet").partition("_")
            if mark and name.endswith(".parquet"):
                found.setdefault(shared, []).append(name)
        return found

    def skips_drops_of(self, stage: str) -> tuple[str, ...]:
        """Stages before this one that it does not depend on, and whose drops it does not process:
        they know them before any model runs."""
        stages, upstream = self.plan.flow.stages, self.plan.flow.upstream[stage]
        before = list(stages)[: list(stages).index(stage)] if stage in stages else ()
        return tuple(
            name
            for name in before
            if name not in upstream and stages[name].drops_before_models(self.plan)
        )

    def waits_for(self, stage: str) -> tuple[str, ...]:
        """The stages whose tables have to be there, in flow order."""
        wanted = {*self.plan.flow.upstream[stage], *self.skips_drops_of(stage)}
        return tuple(name for name in self.plan.flow.stages if name in wanted)

    def _beside(self, stage: str, chunk: Chunk) -> list[str]:
        """Hashes of what is read besides the images and reaches a stage's table."""
        reading = dict(zip(self.plan.beside, chunk.beside, strict=True))
        names = (*self.plan.flow.upstream[stage], stage)
        return [reading[name] for name in names if name in reading]

    def missing(self, stage: str, chunks: list[Chunk]) -> list[Chunk]:
        """The chunks whose table is not there yet."""
        names = self.store.names(self.plan.folder(stage))
        return [c for c in chunks if not names.intersection(self._names(stage, c))]

    def forget_after(self, stage: str, chunks: list[Chunk]) -> None:
        """Remove what was made of these chunks' tables of a stage: one that is made anew may hold
        other samples, as where a captioner had failed before. Where a retry has the rows of before,
        it also has those of later stages, which stay."""
        has_before = {f"{c.index:06d}": self.was_moved_aside(stage, c) for c in chunks}
        flow = self.plan.flow
        later = [name for name in flow.stages if stage in flow.upstream[name]]
        for folder in [*map(self.plan.folder, later), self.ledger_folder]:
            self._forget(folder, has_before)

    def _forget(self, folder: str, has_before: Mapping[str, bool]) -> None:
        for name in self.store.names(folder):
            index = name.partition("-")[0]
            if index in has_before and not (has_before[index] and name.endswith(BEFORE)):
                self.store.remove(f"{folder}/{name}")

    def forget_ledger(self, chunk: Chunk) -> None:
        """Remove a chunk's ledger, as its tables change."""
        self._forget(self.ledger_folder, {f"{chunk.index:06d}": False})

    @property
    def ledger_folder(self) -> str:
        """The folder of the ledgers of all chunks, named by the stages that end the flow."""
        ends = self.plan.flow.ends
        if len(ends) == 1:
            return f"ledger{self.plan.folder(ends[0]).removeprefix(ends[0])}"
        together = " ".join(self.plan.fingerprints[name] for name in ends)
        return f"ledger-{hashlib.sha256(together.encode()).hexdigest()[:12]}"

    def write(self, stage: str, chunk: Chunk, rows: list[dict[str, Any]], tokens: int = 0) -> None:
        """Publish a stage's table, with the tokens that were used for it."""
        table = stage_table(self.plan.flow.step(stage).columns, rows, tokens)
        write_table(self.store, self.table(stage, chunk), table)

    def items(self, stage: str, chunk: Chunk) -> Sequence[Entry | Sample]:
        """Return the items that reach a stage: entries of the listing the first one, samples the
        others."""
        if self.plan.flow.upstream[stage]:
            return self.samples(stage, chunk)
        return read_chunk(_listing(self.store), chunk)

    def ingest_rows(self, chunk: Chunk) -> list[dict[str, Any]]:
        """The first stage's table of a chunk, drops and duplicates included, in listing order."""
        return read_table(self.store, self.table(Ingest.name, chunk)).to_pylist()

    def rows(self, stage: str, chunk: Chunk) -> dict[str, dict[str, Any]]:
        """A later stage's rows by sample."""
        table = read_table(self.store, self.table(stage, chunk))
        return {row["sample_id"]: row for row in table.to_pylist()}

    def outcomes(self, stage: str, chunk: Chunk) -> dict[str, dict[str, Any] | None]:
        """A later stage's drops by sample, None where it has a result."""
        table = read_table(self.store, self.table(stage, chunk), columns=("sample_id", "drop"))
        return dict(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))

    def samples(self, stage: str, chunk: Chunk) -> list[Sample]:
        """The samples that reach a stage, with everything the stages before it added."""
        samples = list(self.ingested(chunk))
        later = self.plan.flow.later_stages
        for name in filter(later.__contains__, self.plan.flow.upstream[stage]):
            rows, step = self.rows(name, chunk), later[name]
            found = [
                (each, self.row_of(rows, each.sample_id, each.source_path, name, chunk))
                for each in samples
            ]
            samples = [step.with_row(sample, row) for sample, row in found if row["drop"] is None]
        for name in self.skips_drops_of(stage):
            outcomes = self.outcomes(name, chunk)
            samples = [each for each in samples if outcomes.get(each.sample_id) is None]
        return samples

    def row_of(
        self, rows: Mapping[str, T], sample_id: str, source_path: str, stage: str, chunk: Chunk
    ) -> T:
        """Return the row that a stage's table has for a sample.

        Raises:
            DamagedTableError: nothing, so the table is not of these samples.
        """
        if sample_id not in rows:
            reason = f"it has no row of {source_path}"
            raise DamagedTableError(self.store.root, self.table(stage, chunk), reason)
        return rows[sample_id]

    def ingested(self, chunk: Chunk) -> Iterator[Sample]:
        """Samples of a chunk that ingest let through and that repeat no other."""
        skip, twins = set(chunk.skip), {each.row: each.paths for each in chunk.twins}
        for number, row in enumerate(self.ingest_rows(chunk)):
            if row["drop"] is None and number not in skip:
                yield replace(Ingest.sample(row), twins=twins.get(number, ()))


def _key(chunk: Chunk, beside: list[str], *, duplicates: bool = True) -> str:
    """The chunk's key, with files beside the images, and after duplicates were found in it."""
    skip, twins = (chunk.skip, chunk.twins) if duplicates else ((), ())
    if not skip and not twins and not beside:
        return chunk.key
    also = [(each.row, each.paths, each.labels) for each in twins] or ""
    return hashlib.sha256(f"{chunk.key}{skip}{beside}{also}".encode()).hexdigest()[:12]


_open_listings: dict[tuple[str, str], pq.ParquetFile] = {}


def _listing(store: Store) -> pq.ParquetFile:
    """The listing's footer is large; a worker parses it once."""
    key = (store.root, store.entry("listing.parquet").stamp)
    if key not in _open_listings:
        _open_listings.clear()
        _open_listings[key] = open_listing(store.for_arrow("listing.parquet"))
    return _open_listings[key]
