"""When which stage of a build was at work, with how many of its workers; small for any build.

work/timeline.json    the runs that had something to do, the last of them last
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Self

from glit.errors import StorageError
from glit.pipeline.executors.protocols import BusyInterval, Task
from glit.storage.store import Store, to_json

TIMELINE = "timeline.json"
_MOST_BINS = 512
_FIRST_BIN_S = 0.25
_MOST_RUNS = 20
_SAVE_EVERY_S = 30.0


@dataclass(slots=True, kw_only=True)
class StageTime:
    """A stage's part of a run."""

    place: str
    """The device that did the work: cpu, cuda, mps or server."""
    workers: int = 0
    """Most workers at work together."""
    busy_s: list[float] = field(default_factory=list)
    """Seconds that workers were at work, summed over them, by bin."""
    lost_s: float = 0.0
    """The part of ``busy_s`` that was lost: its units were done again because the worker died."""
    units: int = 0
    """Units that were done in this run."""


@dataclass(slots=True, kw_only=True)
class Timeline:
    """A run of a build in bins of equal length, which doubles when there are too many.

    >>> line = Timeline(start_s=100.0)
    >>> line.note("caption", "cuda", BusyInterval(worker="a", start_s=100.0, stop_s=100.5))
    >>> line.stages["caption"].busy_s
    [0.25, 0.25]
    """

    start_s: float
    """Since the epoch."""
    bin_s: float = _FIRST_BIN_S
    cores: int = 0
    """That the run might use; 0 if it was not noted."""
    gpus: int = 0
    gpu_names: list[str] = field(default_factory=list)
    """Of the GPUs that workers used; empty if none was noted."""
    stages: dict[str, StageTime] = field(default_factory=dict)

    def note(self, stage: str, place: str, stretch: BusyInterval, workers: int = 1) -> None:
        """A worker's time with a unit."""
        found = self.stages.setdefault(stage, StageTime(place=place))
        found.workers = max(found.workers, workers)
        found.lost_s += (stretch.stop_s - stretch.start_s) if stretch.lost else 0.0
        found.units += not stretch.lost
        start, stop = (max(0.0, at - self.start_s) for at in (stretch.start_s, stretch.stop_s))
        while stop > _MOST_BINS * self.bin_s:
            self._halve()
        last = max(0, math.ceil(stop / self.bin_s) - 1)
        found.busy_s += [0.0] * (last + 1 - len(found.busy_s))
        for number in range(int(start / self.bin_s), last + 1):
            low, high = number * self.bin_s, (number + 1) * self.bin_s
            found.busy_s[number] += max(0.0, min(stop, high) - max(start, low))

    def _halve(self) -> None:
        self.bin_s *= 2
        for stage in self.stages.values():
            padded = [*stage.busy_s, 0.0]
            stage.busy_s = [padded[i] + padded[i + 1] for i in range(0, len(stage.busy_s), 2)]

    @property
    def seconds(self) -> float:
        """From the start to the last unit."""
        return self.bin_s * max((len(stage.busy_s) for stage in self.stages.values()), default=0)

    def at_work(self, *, place: str = "", stage: str = "") -> list[float]:
        """The share of a place's or a stage's workers that was at work, 0 to 1, by bin; of a place,
        of the workers of the stages that were at work there in that bin."""
        chosen = [
            each
            for name, each in self.stages.items()
            if name == stage or (place and each.place == place)
        ]
        shares = []
        for number in range(max((len(each.busy_s) for each in chosen), default=0)):
            here = [e for e in chosen if number < len(e.busy_s) and e.busy_s[number]]
            busy = sum(e.busy_s[number] for e in here)
            workers = max((e.workers for e in here), default=1)
            shares.append(min(1.0, busy / (workers * self.bin_s)))
        return shares


def units_done(runs: Sequence[Timeline], stage: str) -> int:
    """Return how many units of a stage were done in the runs that are remembered, which are the
    recent ones: their times belong to these units alone."""
    return sum(run.stages[stage].units for run in runs if stage in run.stages)


def seconds_left(
    runs: Sequence[Timeline], stages: Sequence[Mapping[str, Any]]
) -> tuple[float, list[str]]:
    """Return how long the rest of a build takes at the pace of its runs so far.

    Stages of one place take turns; those of different places work at the same time.

    Args:
        runs: of the build.
        stages: ``stage``, ``chunks_done`` and ``chunks_total`` of each.

    Returns:
        Seconds, without the stages that have not finished a chunk; and the names of these.
    """
    by_place: dict[str, float] = {}
    unknown = []
    for stage in stages:
        name, done = stage["stage"], stage["chunks_done"]
        left = stage["chunks_total"] - done
        found = [run.stages[name] for run in runs if name in run.stages]
        took_s = sum((sum(each.busy_s) - each.lost_s) / max(1, each.workers) for each in found)
        units = units_done(runs, name)
        if left and not (units and took_s):
            unknown.append(name)
        elif left:
            place = found[-1].place
            by_place[place] = by_place.get(place, 0.0) + took_s / units * left
    return max(by_place.values(), default=0.0), unknown


def rate_per_s(runs: Sequence[Timeline], stage: Mapping[str, Any]) -> float | None:
    """Return a stage's throughput in samples per second, over all its workers and only while it
    ran; None if its times are not known."""
    name, chunks = stage["stage"], stage["chunks_done"]
    done = stage["rows"] * units_done(runs, name) / chunks if chunks else 0
    found = [(run.bin_s, run.stages[name].busy_s) for run in runs if name in run.stages]
    seconds = sum(bin_s * sum(busy > 0 for busy in bins) for bin_s, bins in found)
    return done / seconds if done and seconds else None


class TimelineWriter:
    """Records the timeline of a run, and keeps it in a work folder at the end of the block.

    Args:
        store: the work folder.
        size: cores and GPUs of the run.
    """

    def __init__(self, store: Store, size: tuple[int, int]) -> None:
        self._store, self._size = store, size
        self._line: Timeline | None = None
        self._is_saved = True
        self._saved_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Save, but ask nothing more of a store that fails, which may take minutes."""
        if not isinstance(error, StorageError):
            self._save()

    def recorder(self, task: Task, units: Sequence[Any]) -> Callable[[BusyInterval], None]:
        """Return the recorder of a job, and save what earlier jobs reported.

        The first job with units begins the run.
        """
        self._save()
        if units and self._line is None:
            cores, gpus = self._size
            self._line = Timeline(start_s=time.time(), cores=cores, gpus=gpus)
            self._saved_at = time.monotonic()
        return partial(self._note, task.name, task.needs.place, set())

    def note_gpu(self, name: str) -> None:
        """Note the name of a GPU that a worker used; empty for none."""
        if name and self._line is not None and name not in self._line.gpu_names:
            self._line.gpu_names.append(name)
            self._is_saved = False

    def _note(self, stage: str, place: str, seen: set[str], stretch: BusyInterval) -> None:
        assert self._line is not None
        seen.add(stretch.worker)
        self._line.note(stage, place, stretch, len(seen))
        self._is_saved = False
        if time.monotonic() - self._saved_at > _SAVE_EVERY_S:
            self._save()

    def _save(self) -> None:
        if self._line is None or self._is_saved:
            return
        self._is_saved, self._saved_at = True, time.monotonic()
        with contextlib.suppress(OSError, StorageError):  # nothing depends on it
            runs = [run for run in read_timelines(self._store) if run.start_s != self._line.start_s]
            kept = [*runs, self._line][-_MOST_RUNS:]
            self._store.write(TIMELINE, to_json([asdict(run) for run in kept]))


def read_timelines(work: Store) -> list[Timeline]:
    """The runs of a build, the last of them last; none where the file is not there or damaged, as
    nothing depends on it."""
    if not work.exists(TIMELINE):
        return []
    try:
        return [_from(run) for run in json.loads(work.read(TIMELINE))]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return []


def _from(run: dict[str, Any]) -> Timeline:
    stages = {
        name: StageTime(
            place=str(each["place"]),
            workers=int(each["workers"]),
            busy_s=[_finite(value) for value in each["busy_s"]],
            lost_s=_finite(each["lost_s"]),
            units=int(each["units"]),
        )
        for name, each in run["stages"].items()
    }
    start_s, bin_s = _finite(run["start_s"]), _finite(run["bin_s"])
    size = {name: int(run.get(name, 0)) for name in ("cores", "gpus")}
    names = [str(name) for name in run.get("gpu_names", ())]
    return Timeline(start_s=start_s, bin_s=bin_s, **size, gpu_names=names, stages=stages)


def _finite(value: Any) -> float:
    """A number of a file that anybody may have changed.

    Raises:
        ValueError: it is no finite one.
    """
    if not math.isfinite(found := float(value)):
        raise ValueError(f"{value} seconds")
    return found
