"""A stage over chunks: read the samples, process them, publish one table."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glit.data.records import Drop
from glit.errors import DamagedTableError, GlitError, RunError, WeightsError, cut
from glit.models.backends.base import PLAIN_BYTES, Backend
from glit.models.device import gpu_memory, gpu_name
from glit.models.files import weight_files, weights_hash
from glit.models.weights import Resolved
from glit.pipeline.executors.protocols import Heartbeat, Place, Resources, Tally
from glit.pipeline.work.folder import SO_FAR, Work
from glit.pipeline.work.listing import Chunk
from glit.pipeline.work.state import STATE
from glit.pipeline.work.tables import drops_by_reason, sum_tokens
from glit.stages.base import TableStep
from glit.stages.image_source import ImageSource

MOST_ALIKE = 100
MOST_SAME = 200
_ALL_FAILED = 8
_FAILURES = {"model_error", "captioner_error", "not_finite"}
_BAD_CAPTIONS = {
    "content_filter", "empty_caption", "garbled_caption", "looping", "refusal", "wrong_language",
}  # fmt: skip
_KEEP_EVERY_S = 20.0
_BEAT_EVERY_S = 0.5
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
        return ", ".join(model.name for model in self._models)

    @property
    def needs(self) -> Resources:
        backend = self._backend
        if backend is None:
            return Resources(memory_bytes=PLAIN_BYTES)
        files = [file for model in self._models for file in weight_files(model.path)]
        weights = sum(file.stat().st_size for file in files)
        device: Place = self._config.device if backend.needs_model else "cpu"
        return Resources(
            memory_bytes=backend.process_bytes + 3 * weights,
            place="server" if backend.on_server else device,
            gpus=backend.gpus(self._config) if device == "cuda" else 0,
            gpu_bytes=backend.gpu_bytes + weights if backend.gpu_bytes else 0,
            units_at_once=2 if backend.continuous else 1,
            longest_wait_s=backend.longest_wait_s(self._config),
            keeps_process=backend.keeps_process,
        )

    @property
    def _config(self) -> Any:
        return self.work.plan.configs[self.name]

    @property
    def _backend(self) -> Backend | None:
        return self.work.plan.flow.step(self.name).backend(self._config)

    @property
    def _models(self) -> list[Resolved]:
        if self._backend is None or not self._backend.needs_model:
            return []
        plan = self.work.plan
        return [plan.models[role] for role in plan.flow.step(self.name).models(plan.recipe)]

    def open(self, threads: int) -> StageWorker:
        """Load the stage's model.

        Raises:
            GlitError: this machine does not see what the build began with.
        """
        _see_the_same(self.work, self.name)
        stage = self.work.plan.flow.stages[self.name].open(self.work.plan)
        return StageWorker(self.name, self.work, stage, threads=threads)


def _see_the_same(work: Work, stage: str) -> None:
    """See that the work folder and the stage's models are here, and are those of the build.

    Hashes of weights are remembered on each machine, so large ones are read once.

    Raises:
        RunError: the work folder is not the build's.
        WeightsError: a model is not here, or is another one.
    """
    host = socket.gethostname()
    if not work.store.exists(STATE):
        raise RunError(
            f"{host}: does not see {work.store.root} as the build does; put the dataset on a disk "
            "that all machines share under one path, or at an address"
        )
    for role in work.plan.flow.step(stage).models(work.plan.recipe):
        model = work.plan.models[role]
        if not model.path.exists():
            raise WeightsError(
                f"{host}: model {model.name!r} is not at {model.path}; every machine needs it there"
            )
        if (found := weights_hash(model.path)) != model.sha256:
            raise WeightsError(
                f"{host}: {model.path}: other weights than the build began with (SHA-256 {found}, "
                f"want {model.sha256}); put the same there, and run the same command again"
            )


class StageWorker:
    """An opened stage; see :class:`glit.pipeline.executors.protocols.Worker`."""

    def __init__(self, name: str, work: Work, stage: TableStep, *, threads: int) -> None:
        self._name = name
        self._work = work
        self._stage = stage
        self._images = ImageSource(work.images, threads=threads)
        self._files = work.files_by_key(name)
        config = work.plan.configs[name]
        backend = work.plan.flow.step(name).backend(config)
        self._failures = AnswersAlike(stage, backend if work.retry is None else None)
        self._keeps_rows = backend is not None and (backend.is_slow(config) or backend.on_server)

    def run(
        self, unit: Chunk, excluded: Mapping[str, str] | None
    ) -> Generator[Heartbeat, None, Tally]:
        """Process a chunk, but for the rows that earlier tables have of it, and publish its table.

        Raises:
            RunError: the disk is full, or a model failed on every sample of the chunk.
        """
        items, so_far = self._work.items(self._name, unit), self._work.so_far(self._name, unit)
        goes_on = self._has_rows_so_far(unit)
        kept, retried = self._earlier(unit)
        before = sum_tokens(self._work.store, [so_far] if goes_on else [])
        tokens = Tokens(self._stage, before)
        todo = [item for item in items if self._key(item) not in kept]
        fresh = yield from with_heartbeats(self._kept(unit, self._rows(todo, excluded), tokens))
        if not goes_on or self._work.retry is not None:  # else the rest of the chunk did not fail
            refuse_total_failure(self._name, fresh)
        for row, key in zip(fresh, map(self._key, todo), strict=True):
            if row.get("drop") and key in retried:
                row["drop"]["attempt"] = retried[key] + 1
            kept[key] = row
        rows, used = [kept[self._key(item)] for item in items], tokens.so_far()
        self._work.write(self._name, unit, rows, used)
        if self._keeps_rows or goes_on:
            self._work.store.remove(so_far)
        return Tally(
            rows=len(rows), drops=drops_by_reason(rows), tokens=used, tokens_before=before,
            gpu=gpu_name(), requests_repeated=tokens.requests_repeated,
        )  # fmt: skip

    def _has_rows_so_far(self, unit: Chunk) -> bool:
        """Whether rows of the chunk are kept: those of a run that was stopped, here or in a process
        that died since this one looked, or those that a retry set aside."""
        name = self._work.so_far(self._name, unit)
        listed = name.rpartition("/")[2] in self._files.get(self._work.key(self._name, unit), ())
        return (listed or self._keeps_rows) and self._work.store.exists(name)

    def _kept(
        self,
        unit: Chunk,
        rows: Iterator[dict[str, Any] | Heartbeat],
        tokens: Tokens,
    ) -> Iterator[dict[str, Any] | Heartbeat]:
        """The rows; where they are slow or paid for, those that are no drops are written down now
        and then, and when the stage ends with an error."""
        kept, written = [], time.monotonic()
        try:
            for row in rows:
                yield row
                if isinstance(row, Heartbeat):
                    continue
                kept += [row] if not row.get("drop") else []
                self._failures.count(row)
                if self._keeps_rows and kept and time.monotonic() - written >= _KEEP_EVERY_S:
                    self._work.keep(self._name, unit, kept, tokens.so_far())
                    written = time.monotonic()
        except SameCaptionsError:
            self._work.store.remove(self._work.so_far(self._name, unit))
            raise
        except GlitError:
            if self._keeps_rows and kept:
                self._work.keep(self._name, unit, kept, tokens.so_far())
            raise

    def _key(self, item: Any) -> str:
        return self._stage.blank(item)[self._stage.key]

    def _earlier(self, unit: Chunk) -> tuple[dict[str, dict[str, Any]], dict[str, int]]:
        """Rows of earlier tables of this chunk that stay, and the attempts on items whose drop is
        tried again.

        Raises:
            DamagedTableError: of the rows so far; a damaged table of other samples is passed over.
        """
        work, name, known = self._work, self._name, dict[str, dict[str, Any]]()
        for file in sorted(self._files.get(work.key(name, unit), ())):
            if not file.endswith(SO_FAR):
                with contextlib.suppress(DamagedTableError):
                    known |= work.known_rows(name, unit, file)
        if self._has_rows_so_far(unit):
            known |= work.known_rows(name, unit, work.so_far(name, unit).rpartition("/")[2])
        if work.retry is None:
            return known, {}
        drops = {key: row["drop"] for key, row in known.items() if row.get("drop")}
        wanted = {k: drop for k, drop in drops.items() if work.retry.wants(name, drop["reason"])}
        kept = {key: row for key, row in known.items() if key not in wanted}
        return kept, {key: drop["attempt"] for key, drop in wanted.items()}

    def _rows(
        self, items: Sequence[Any], excluded: Mapping[str, str] | None
    ) -> Iterator[dict[str, Any] | Heartbeat]:
        """A table row per item, in order; one at a time, each after a beat, if there is something
        to exclude."""
        if excluded is None:
            yield from self.rows(items)
            return
        for number, item in enumerate(items):
            key = self._key(item)
            if (reason := excluded.get(key)) is not None:
                yield self._stage.drop(item, Drop(reason=reason, message=_LOST[reason]))
                continue
            yield Heartbeat(rows=number, drops=0, at=key)
            yield from self.rows([item])
        yield Heartbeat(rows=len(items), drops=0)

    def rows(self, items: Sequence[Any]) -> Iterator[dict[str, Any]]:
        """A table row per item, in order."""
        made = self._stage.rows(items, self._images)
        for _ in items:
            yield next(made)
        assert next(made, None) is None, f"{self._name}: more rows than items"


def with_heartbeats(
    rows: Iterable[dict[str, Any] | Heartbeat],
) -> Generator[Heartbeat, None, list[dict[str, Any]]]:
    """All rows; on the way a beat now and then.

    The rows of a batch come all at once, so the first is told, and of those after it the second,
    fourth, eighth and so on.
    """
    done: list[dict[str, Any]] = []
    drops, since, told = 0, 0, time.monotonic()
    for row in rows:
        if isinstance(row, Heartbeat):
            yield row
            continue
        done.append(row)
        drops += row.get("drop") is not None
        if (now := time.monotonic()) - told >= _BEAT_EVERY_S:
            told, since = now, 1
        elif since:
            since += 1
        if since.bit_count() == 1:
            yield Heartbeat(rows=len(done), drops=drops, gpu_memory=gpu_memory())
    return done


class Tokens:
    """The tokens that were used for a chunk, and the requests that were sent again in this run. Of
    two chunks at once, either may be given those of both; none is counted twice."""

    def __init__(self, stage: TableStep, before: int) -> None:
        """Start with a chunk of which earlier runs have used so many."""
        self._stage, self._number = stage, before
        self.requests_repeated = 0

    def so_far(self) -> int:
        """Return the number until now."""
        used = self._stage.usage()
        self._number += used.tokens
        self.requests_repeated += used.requests_repeated
        return self._number


class SameCaptionsError(RunError):
    """A captioner says the same of every image; what it said is not kept."""


class AnswersAlike:
    """Ends a stage whose model gave nothing yet, always for the same reason, or the same caption of
    every image."""

    def __init__(self, stage: TableStep, backend: Backend | None) -> None:
        """Start with a stage; without a backend nothing is counted."""
        is_model = backend is not None and backend.reads == "pixels"
        self._writes = is_model and "caption" in stage.makes
        self._stage = stage.name
        self._reasons = _FAILURES | (_BAD_CAPTIONS if self._writes else set())
        self._lock = threading.Lock()
        self._is_on = backend is not None
        self._first: tuple[str, Any] = "", None
        self._number = 0

    def count(self, row: dict[str, Any]) -> None:
        """Count a row.

        Raises:
            SameCaptionsError: it is the two hundredth, and all are the same caption.
            RunError: it is the hundredth, and all failed for one reason.
        """
        drop = row.get("drop") or {}
        reason = drop.get("reason", "")
        said = reason, None if drop else row.get("caption")
        is_counted = reason in self._reasons if drop else self._writes
        with self._lock:
            if not is_counted or (self._number and self._first != said):
                self._is_on = False  # the model works, or does not always fail in the same way
            if not self._is_on:
                return
            self._first = said
            self._number += 1
            if self._number < (MOST_ALIKE if drop else MOST_SAME):
                return
        if not drop:
            raise SameCaptionsError(
                f"stage {self._stage}: the first {MOST_SAME} captions are all the same: "
                f"{cut(repr(said[1]))}; does the model see the images? Change recipe, model or "
                "server, then run it again"
            )
        raise RunError(
            f"stage {self._stage}: the first {MOST_ALIKE} samples all failed as {reason}; the "
            f"last: {drop['message']}; change recipe, model or server, then run it again"
        )


def refuse_total_failure(stage: str, rows: Sequence[dict[str, Any]]) -> None:
    """Refuse a chunk of which the model failed on every sample.

    Raises:
        RunError: with the first failure.
    """
    failed = [row["drop"] for row in rows if (row.get("drop") or {}).get("reason") in _FAILURES]
    if len(rows) >= _ALL_FAILED and len(failed) == len(rows):
        raise RunError(
            f"stage {stage}: the model failed on all {len(rows)} samples of a chunk; "
            f"the first failure: {failed[0]['message']}"
        )
