"""The work folder: stage tables by chunk, and what is done.

    work/listing.parquet                                   the input, one row group a chunk
    work/<stage>-<fingerprint>/000012-<key>.parquet        a stage's table for a chunk
    work/<stage>-<fingerprint>/000012-<key>_<some>.parquet the same without some of its samples
    work/<stage>-<fingerprint>/000012-<key>.so-far.parquet rows of a table that is not finished
    work/ledger-<fingerprint>/000012-<key>.parquet         see :mod:`glit.pipeline.work.ledger`

``<key>`` is of what the rows are made of: the chunk's images and the files that are read beside
them. A table whose whole name is that of now is complete; nothing else says what is done. Where it
is missing, the rows of all files with its key are known and not made again. A retry therefore only
renames the tables that it concerns to those of rows so far.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow.parquet as pq

from glit.data.records import Sample
from glit.errors import DamagedTableError
from glit.pipeline.work.listing import Chunk, open_listing, read_chunk
from glit.pipeline.work.state import Retry
from glit.pipeline.work.tables import read_table, read_twins, stage_table, write_table
from glit.stages.ingest import Ingest
from glit.stages.plan import Plan
from glit.storage.store import Entry, Store

T = TypeVar("T")
SO_FAR = ".so-far.parquet"


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
        key = self.key(stage, chunk)
        # the first step knows of no duplicates
        found = (chunk.skip, chunk.twins) if self.plan.flow.upstream[stage] else ((), ())
        reading = dict(zip(self.plan.beside, chunk.beside, strict=True))
        skipped = [reading.get(other, "") for other in self.skips_drops_of(stage)]
        partial = f"{key}{_mark(*found, skipped)}.parquet" if skipped else ""
        return f"{key}{_mark(*found)}.parquet", partial

    def key(self, stage: str, chunk: Chunk) -> str:
        """The beginning that all files with rows of a chunk share, as long as its images and the
        files beside them are the same."""
        beside = self._beside(stage, chunk)
        key = _hash(f"{chunk.key}{beside}") if beside else chunk.key
        return f"{chunk.index:06d}-{key}"

    def so_far(self, stage: str, chunk: Chunk) -> str:
        """Return where rows are kept until their chunk is finished."""
        return f"{self.plan.folder(stage)}/{self.key(stage, chunk)}{SO_FAR}"

    def keep(self, stage: str, chunk: Chunk, rows: list[dict[str, Any]], tokens: int = 0) -> None:
        """Add rows to those kept of a chunk that is not finished.

        Args:
            stage: its name.
            chunk: the chunk.
            rows: without drops.
            tokens: that were used for the chunk so far, in earlier runs too.

        Raises:
            DamagedTableError: of the rows so far.
        """
        name = self.so_far(stage, chunk)
        before = read_table(self.store, name).to_pylist() if self.store.exists(name) else []
        kept = {row[self.plan.flow.stages[stage].key]: row for row in [*before, *rows]}
        self._write(name, stage, chunk, list(kept.values()), tokens)

    def known_rows(self, stage: str, chunk: Chunk, name: str) -> dict[str, dict[str, Any]]:
        """The rows of a file of a stage that still hold of the chunk, by sample or by path.

        Args:
            stage: its name.
            chunk: the chunk.
            name: of a file whose name begins with the chunk's key.

        Raises:
            DamagedTableError: of the file.
        """
        table = read_table(self.store, f"{self.plan.folder(stage)}/{name}")
        then, now = read_twins(table), self._twins(stage, chunk)
        found = {row[self.plan.flow.stages[stage].key]: row for row in table.to_pylist()}
        return {key: row for key, row in found.items() if then.get(key) == now.get(key)}

    def _twins(self, stage: str, chunk: Chunk) -> dict[str, str]:
        """By sample a hash of what its duplicates bring, for a stage to whose rows that counts."""
        if not self._beside(stage, chunk):
            return {}
        return {each.sample_id: _hash(f"{each.paths}{each.labels}") for each in chunk.twins}

    def set_aside(self, stage: str, chunk: Chunk) -> None:
        """Make a table one of rows so far, if it is there: a retry makes some of them again."""
        if self.store.exists(name := self.table(stage, chunk)):
            self.store.move(name, self.so_far(stage, chunk))

    def files_by_key(self, stage: str) -> dict[str, list[str]]:
        """Names of all files with rows of a stage, by the :meth:`key` of their chunk."""
        found: dict[str, list[str]] = {}
        for name in self.store.names(self.plan.folder(stage)):
            found.setdefault(name.partition(".")[0].partition("_")[0], []).append(name)
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
        other samples, as where a captioner had failed before. Where its rows so far are kept, those
        of later stages are kept as well."""
        names, flow = self.store.names(self.plan.folder(stage)), self.plan.flow
        goes_on = {f"{c.index:06d}": f"{self.key(stage, c)}{SO_FAR}" in names for c in chunks}
        later = [name for name in flow.stages if stage in flow.upstream[name]]
        for folder in [*map(self.plan.folder, later), self.ledger_folder]:
            self._forget(folder, goes_on)

    def _forget(self, folder: str, goes_on: Mapping[str, bool]) -> None:
        for name in self.store.names(folder):
            index = name.partition("-")[0]
            if index in goes_on and not (goes_on[index] and name.endswith(SO_FAR)):
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
        return f"ledger-{_hash(' '.join(self.plan.fingerprints[name] for name in ends))}"

    def write(self, stage: str, chunk: Chunk, rows: list[dict[str, Any]], tokens: int = 0) -> None:
        """Publish a stage's table, with the tokens that were used for it."""
        self._write(self.table(stage, chunk), stage, chunk, rows, tokens)

    def _write(
        self, name: str, stage: str, chunk: Chunk, rows: list[dict[str, Any]], tokens: int
    ) -> None:
        columns, twins = self.plan.flow.step(stage).columns, self._twins(stage, chunk)
        write_table(self.store, name, stage_table(columns, rows, tokens, twins))

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


def _mark(*parts: object) -> str:
    """An ending of a name that tells apart what a table leaves out; empty for nothing."""
    return f"_{_hash(str(parts))}" if any(parts) else ""


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


_open_listings: dict[tuple[str, str], pq.ParquetFile] = {}


def _listing(store: Store) -> pq.ParquetFile:
    """The listing's footer is large; a worker parses it once."""
    key = (store.root, store.entry("listing.parquet").stamp)
    if key not in _open_listings:
        _open_listings.clear()
        _open_listings[key] = open_listing(store.for_arrow("listing.parquet"))
    return _open_listings[key]
