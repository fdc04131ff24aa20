"""A stage over chunks: read the samples, process them, publish one table."""

from __future__ import annotations

import contextlib
import errno
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from glit.backends.base import PLAIN_BYTES, Backend
from glit.backends.device import gpu_memory
from glit.backends.model_files import weight_files
from glit.data.records import Drop, Sample
from glit.data.rows import drop_row
from glit.errors import DamagedTableError, GlitError, RunError
from glit.executors.protocols import Heartbeat, Place, Resources, Tally
from glit.pipeline.listing import Chunk
from glit.pipeline.tables import drops_by_reason, read_table, stage_row
from glit.pipeline.work import Work
from glit.pipeline.worker_check import see_the_same
from glit.stages.base import Outcome, Stage, Step
from glit.stages.image_source import ImageSource
from glit.stages.ingest import IngestConfig, ingest
from glit.storage.store import Entry

T = TypeVar("T")

_ALL_FAILED = 8
_BEAT_EVERY_S = 0.5
_FAILURES = {"model_error", "captioner_error", "not_finite"}
_LOST = {
    "worker_crash": "the sample killed its worker process repeatedly",
    "timeout": "the sample kept its worker process busy until that was ended, repeatedly",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTask:
    """A stage of a plan, to be opened in a worker."""

    name: str
    work: Work

    @property
    def loads(self) -> str:
        plan = self.work.plan
        models = self._step.models(plan.recipe) if self._with_model else ()
        return ", ".join(plan.models[role].name for role in models)

    @property
    def needs(self) -> Resources:
        backend, weights = self._backend, self._weight_bytes
        if backend is None:
            return Resources(memory_bytes=PLAIN_BYTES)
        on_gpu = self._with_model and self._config.device == "cuda"
        return Resources(
            memory_bytes=backend.process_bytes + 3 * weights,
            place=self._place(backend),
            gpus=backend.gpus(self._config) if on_gpu else 0,
            gpu_bytes=backend.gpu_bytes + weights if backend.gpu_bytes else 0,
            units_at_once=2 if backend.continuous else 1,
            longest_wait_s=backend.longest_wait_s(self._config),
            keeps_process=backend.keeps_process,
        )

    def _place(self, backend: Backend) -> Place:
        if backend.on_server:
            return "server"
        return self._config.device if self._with_model else "cpu"

    @property
    def _weight_bytes(self) -> int:
        plan = self.work.plan
        models = self._step.models(plan.recipe) if self._with_model else ()
        files = [file for role in models for file in weight_files(plan.models[role].path)]
        return sum(file.stat().st_size for file in files)

    @property
    def _config(self) -> Any:
        return self.work.plan.configs[self.name]

    @property
    def _backend(self) -> Backend | None:
        return self._step.backend(self._config)

    @property
    def _step(self) -> type[Step]:
        return self.work.plan.flow.step(self.name)

    @property
    def _with_model(self) -> bool:
        return self._backend is not None and self._backend.needs_model

    def open(self, threads: int) -> StageWorker | IngestWorker:
        """Load the stage's model.

        Raises:
            GlitError: this machine does not see what the build began with.
        """
        see_the_same(self.work, self.name)
        step = self._step
        if not issubclass(step, Stage):
            return IngestWorker(self.work)
        stage = step.open(self.work.plan)
        return StageWorker(self.name, self.work, stage, threads=threads)


class StageWorker:
    """An opened stage; see :class:`glit.executors.protocols.Worker`."""

    def __init__(self, name: str, work: Work, stage: Stage, *, threads: int) -> None:
        self._name = name
        self._work = work
        self._stage = stage
        self._images = ImageSource(work.images, threads=threads)
        self._partial = work.partial_tables(name)

    def run(self, unit: Chunk, excluded: Mapping[int, str]) -> Generator[Heartbeat, None, Tally]:
        """Process a chunk and publish its table.

        Raises:
            RunError: the disk is full, or a model failed on every sample of the chunk.
        """
        samples = self._work.samples(self._name, unit)
        kept = self._kept(unit)
        todo = [sample for sample in samples if sample.sample_id not in kept]
        fresh = yield from with_heartbeats(self.rows(todo, excluded))
        self._refuse_total_failure(fresh)
        made = kept | {row["sample_id"]: row for row in fresh}
        rows = [made[sample.sample_id] for sample in samples]
        return write_table(self._work, self._name, unit, rows)

    def _kept(self, unit: Chunk) -> dict[str, dict[str, Any]]:
        """Rows by sample of earlier tables of this chunk, from when other samples were alive."""
        if not self._partial:
            return {}
        name = self._work.table(self._name, unit).rpartition("/")[2]
        shared = name.removesuffix(".parquet").partition("_")[0]
        folder, kept = self._work.plan.folder(self._name), {}
        for other in sorted(self._partial.get(shared, ())):
            with contextlib.suppress(DamagedTableError):
                rows = read_table(self._work.store, f"{folder}/{other}").to_pylist()
                kept |= {row["sample_id"]: row for row in rows}
        return kept

    def _todo(self, unit: Chunk) -> list[Sample]:
        kept = self._kept(unit)
        samples = self._work.samples(self._name, unit)
        return [sample for sample in samples if sample.sample_id not in kept]

    def rows(self, samples: list[Sample], excluded: Mapping[int, str]) -> Iterator[dict[str, Any]]:
        """A table row per sample, in order."""
        alive = [sample for index, sample in enumerate(samples) if index not in excluded]
        outcomes = self._outcomes(alive)
        for index, sample in enumerate(samples):
            outcome = _lost(excluded[index]) if index in excluded else next(outcomes)
            yield stage_row(type(self._stage), sample.sample_id, outcome)
        assert next(outcomes, None) is None, f"{self._name}: more outcomes than samples"

    def _outcomes(self, samples: list[Sample]) -> Iterator[Outcome]:
        number = 0
        for outcome in self._stage.process(samples, self._images):
            number += 1
            yield outcome
        assert number == len(samples), f"{self._name}: {number} of {len(samples)}"

    def _refuse_total_failure(self, rows: list[dict[str, Any]]) -> None:
        failed = [row["drop"] for row in rows if (row.get("drop") or {}).get("reason") in _FAILURES]
        if len(rows) >= _ALL_FAILED and len(failed) == len(rows):
            raise RunError(
                f"stage {self._name}: the model failed on all {len(rows)} samples of a chunk; "
                f"the first failure: {failed[0]['message']}"
            )

    def probe(self, unit: Chunk, start: int, stop: int, excluded: Mapping[int, str]) -> None:
        """See :class:`glit.executors.protocols.Worker`."""
        deque(self._outcomes(part_of(self._todo(unit), start, stop, excluded)), maxlen=0)

    def size(self, unit: Chunk) -> int:
        """See :class:`glit.executors.protocols.Worker`."""
        return len(self._todo(unit))


class IngestWorker:
    """Ingest over the listing's rows; see :class:`glit.executors.protocols.Worker`."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def run(self, unit: Chunk, excluded: Mapping[int, str]) -> Generator[Heartbeat, None, Tally]:
        """Ingest a chunk and publish its table."""
        rows = yield from with_heartbeats(
            each_ingested(self._work, self._work.entries(unit), excluded)
        )
        return write_table(self._work, "ingest", unit, rows)

    def probe(self, unit: Chunk, start: int, stop: int, excluded: Mapping[int, str]) -> None:
        """See :class:`glit.executors.protocols.Worker`."""
        ingest_rows(self._work, part_of(self._work.entries(unit), start, stop, excluded), {})

    def size(self, unit: Chunk) -> int:
        """See :class:`glit.executors.protocols.Worker`."""
        return len(self._work.entries(unit))


def with_heartbeats(
    rows: Iterable[dict[str, Any]],
) -> Generator[Heartbeat, None, list[dict[str, Any]]]:
    """All rows; on the way a beat now and then.

    The rows of a batch come all at once, so the first is told, and of those after it the second,
    fourth, eighth and so on.
    """
    done: list[dict[str, Any]] = []
    drops, since, told = 0, 0, time.monotonic()
    for row in rows:
        done.append(row)
        drops += row.get("drop") is not None
        if (now := time.monotonic()) - told >= _BEAT_EVERY_S:
            told, since = now, 1
        elif since:
            since += 1
        if since.bit_count() == 1:
            yield Heartbeat(rows=len(done), drops=drops, gpu_memory=gpu_memory())
    return done


def part_of(items: Sequence[T], start: int, stop: int, excluded: Mapping[int, str]) -> list[T]:
    """Those from start to stop, but for the excluded."""
    return [items[index] for index in range(start, stop) if index not in excluded]


def ingest_rows(
    work: Work, entries: list[Entry], excluded: Mapping[int, str]
) -> list[dict[str, Any]]:
    """All of :func:`each_ingested`."""
    return list(each_ingested(work, entries, excluded))


def each_ingested(
    work: Work, entries: list[Entry], excluded: Mapping[int, str]
) -> Iterator[dict[str, Any]]:
    """A row of the ingest table per entry; those at the excluded positions are not touched."""
    alive = [entry for index, entry in enumerate(entries) if index not in excluded]
    done = ingest(alive, work.images, work.plan.config(IngestConfig))
    for index, entry in enumerate(entries):
        yield (
            {
                "sample_id": "",
                "source_path": entry.path,
                "num_bytes": entry.size,
                "drop": drop_row(_lost(excluded[index])),
            }
            if index in excluded
            else next(done)
        )


def _lost(reason: str) -> Drop:
    return Drop(reason=reason, message=_LOST[reason])


def write_table(work: Work, stage: str, unit: Chunk, rows: list[dict[str, Any]]) -> Tally:
    """Write a table.

    Raises:
        RunError: the disk is full or cannot be written to.
    """
    try:
        work.write(stage, unit, rows)
    except OSError as error:
        raise disk_error(error, work.store.root) from error
    return Tally(rows=len(rows), drops=drops_by_reason(rows))


def disk_error(error: OSError, where: str) -> GlitError:
    """The RunError for a failed write; a full disk is named."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RunError(
            f"{where}: the disk is full; free some space and run the same command again, "
            "it goes on where it stopped"
        )
    return RunError(f"{where}: cannot write ({error.strerror or error})")
