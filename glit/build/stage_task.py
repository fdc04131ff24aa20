"""A stage over chunks: read the samples, process them, publish one table."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from glit.build.listing import Chunk
from glit.build.plan import open_stage
from glit.build.tables import stage_row
from glit.build.work import Work
from glit.errors import GlitError, RunError
from glit.executors.protocols import Tally
from glit.records import Drop, Sample
from glit.stages.base import ImageSource, Outcome, Stage
from glit.stages.ingest import ingest
from glit.storage import Entry

_PROCESS_BYTES = 1_200_000_000  # torch and transformers loaded
_PLAIN_BYTES = 400_000_000
_SAM_BYTES = 700_000_000  # maps at 1024 pixels, however small the weights
_ALL_FAILED = 8
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_LARGE_BYTES = 1 << 30, 1 << 25
"""Thresholds of malloc; older glibc refuses an mmap threshold above the second."""
_FAILURES = {"model_error", "captioner_error", "not_finite"}
_KILLED = Drop(reason="worker_crash", message="the sample killed its worker process repeatedly")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTask:
    """A stage of a plan, to be opened in a worker."""

    name: str
    work: Work

    @property
    def uses_gpu(self) -> bool:
        config = getattr(self.work.plan.recipe, self.name)
        return getattr(config, "device", "cpu") in ("auto", "cuda") and self._model() is not None

    @property
    def keeps_process(self) -> bool:
        return not (self.name == "caption" and self.work.plan.recipe.caption.backend == "vllm")

    @property
    def memory_bytes(self) -> int:
        model = self._model()
        if model is None:
            return _PLAIN_BYTES
        from glit.backends.weights import weight_files

        weights = sum(f.stat().st_size for f in weight_files(model.path))
        is_sam = self.name == "propose" and self.work.plan.recipe.propose.backend == "sam"
        return _PROCESS_BYTES + 3 * weights + (_SAM_BYTES if is_sam else 0)

    def _model(self) -> Any:
        role = {"caption": "captioner", "propose": "proposer", "match": "matcher"}.get(self.name)
        return self.work.plan.models.get(role) if role else None

    def open(self) -> StageWorker | IngestWorker:
        """Load the stage's model."""
        prepare_process()
        if self.name == "ingest":
            return IngestWorker(self.work)
        return StageWorker(self.name, self.work, open_stage(self.name, self.work.plan))


def prepare_process() -> None:
    """One thread for a model on a CPU: workers share the cores, and sums keep their order."""
    _keep_freed_memory()
    try:
        import torch
        from transformers.utils import logging
    except ImportError:
        return
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    logging.set_verbosity_error()


def _keep_freed_memory() -> None:
    """Let glibc give tensors the memory it had before instead of asking the kernel each time.

    A model on a CPU frees and allocates the same megabytes in every layer; fetching them as fresh
    pages costs a tenth to a sixth of its time. The peak stays what it was.
    """
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        # the second alone would do harm: either ends glibc's own adjusting of both
        if any(mallopt(_M_MMAP_THRESHOLD, size) for size in _LARGE_BYTES):
            mallopt(_M_TRIM_THRESHOLD, _LARGE_BYTES[0])


class StageWorker:
    """An opened stage; see :class:`glit.executors.protocols.Worker`."""

    def __init__(self, name: str, work: Work, stage: Stage) -> None:
        self._name = name
        self._work = work
        self._stage = stage
        self._images = ImageSource(work.images)

    def run(self, unit: Chunk, excluded: tuple[int, ...]) -> Tally:
        """Process a chunk and publish its table.

        Raises:
            RunError: the disk is full, or a model failed on every sample of the chunk.
        """
        samples = self._work.samples(self._name, unit)
        rows = list(self.rows(samples, excluded))
        self._refuse_total_failure(rows)
        return publish(self._work, self._name, unit, rows)

    def rows(self, samples: list[Sample], excluded: tuple[int, ...]) -> Iterator[dict[str, Any]]:
        """A table row per sample, in order."""
        alive = [sample for index, sample in enumerate(samples) if index not in excluded]
        outcomes = iter(self._outcomes(alive))
        for index, sample in enumerate(samples):
            outcome = _KILLED if index in excluded else next(outcomes)
            yield stage_row(self._name, sample.sample_id, outcome)

    def _outcomes(self, samples: list[Sample]) -> list[Outcome]:
        outcomes = list(self._stage.process(samples, self._images))
        assert len(outcomes) == len(samples), f"{self._name}: {len(outcomes)} of {len(samples)}"
        return outcomes

    def _refuse_total_failure(self, rows: list[dict[str, Any]]) -> None:
        failed = [row["drop"] for row in rows if (row.get("drop") or {}).get("reason") in _FAILURES]
        if len(rows) >= _ALL_FAILED and len(failed) == len(rows):
            raise RunError(
                f"stage {self._name}: the model failed on all {len(rows)} samples of a chunk; "
                f"the first failure: {failed[0]['message']}"
            )

    def probe(self, unit: Chunk, start: int, stop: int) -> None:
        """See :class:`glit.executors.protocols.Worker`."""
        self._outcomes(self._work.samples(self._name, unit)[start:stop])

    def size(self, unit: Chunk) -> int:
        """See :class:`glit.executors.protocols.Worker`."""
        return len(self._work.samples(self._name, unit))


class IngestWorker:
    """Ingest over the listing's rows; see :class:`glit.executors.protocols.Worker`."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def run(self, unit: Chunk, excluded: tuple[int, ...]) -> Tally:
        """Ingest a chunk and publish its table."""
        rows = ingest_rows(self._work, self._work.entries(unit), excluded)
        return publish(self._work, "ingest", unit, rows)

    def probe(self, unit: Chunk, start: int, stop: int) -> None:
        """See :class:`glit.executors.protocols.Worker`."""
        ingest_rows(self._work, self._work.entries(unit)[start:stop], ())

    def size(self, unit: Chunk) -> int:
        """See :class:`glit.executors.protocols.Worker`."""
        return len(self._work.entries(unit))


def ingest_rows(
    work: Work, entries: list[Entry], excluded: tuple[int, ...]
) -> list[dict[str, Any]]:
    """A row of the ingest table per entry; those at the excluded positions are not touched."""
    alive = [entry for index, entry in enumerate(entries) if index not in excluded]
    done = ingest(alive, work.images, work.plan.recipe.ingest)
    return [
        {
            "sample_id": "",
            "source_path": entry.path,
            "num_bytes": entry.size,
            "drop": {"reason": _KILLED.reason, "message": _KILLED.message, "attempt": 0},
        }
        if index in excluded
        else next(done)
        for index, entry in enumerate(entries)
    ]


def publish(work: Work, stage: str, unit: Chunk, rows: list[dict[str, Any]]) -> Tally:
    """Write a table, telling a full disk apart."""
    try:
        work.write(stage, unit, rows)
    except OSError as error:
        raise disk_error(error, work.store.root) from error
    drops: dict[str, int] = {}
    for row in rows:
        if row.get("drop"):
            reason = row["drop"]["reason"]
            drops[reason] = drops.get(reason, 0) + 1
    return Tally(rows=len(rows), drops=drops)


def disk_error(error: OSError, where: str) -> GlitError:
    """A failed write as one line."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RunError(
            f"{where}: the disk is full; free some space and run the same command again, "
            "it goes on where it stopped"
        )
    return RunError(f"{where}: cannot write ({error.strerror or error})")
