"""Progress of long work: a bar on a terminal, occasional lines elsewhere."""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from glit.runtime.terminal import visible

_LINE_EVERY_S = 15.0
_SHOW_EVERY_S = 0.1


class SoFar(Protocol):
    """The progress values of a worker's :class:`glit.pipeline.executors.protocols.Heartbeat`."""

    @property
    def rows(self) -> int: ...

    @property
    def drops(self) -> int: ...

    @property
    def gpu_memory(self) -> tuple[int, int] | None: ...


Listener = Callable[[dict[str, Any]], None]
"""Told every event of a run, as plain values (docs/scale.md, "Watch a build")."""


class StageProgress:
    """Samples done of a stage, and of the next when it begins: what it waits for, then done/total,
    rate, time left, drops, and the memory of the fullest GPU. Told by batch; see
    :class:`glit.pipeline.executors.protocols.Watch`.

    Args:
        console: a bar or lines go there.
        quiet: show nothing there.
        listeners: told the same as plain values.
    """

    def __init__(
        self, console: Console, *, quiet: bool = False, listeners: Sequence[Listener] = ()
    ) -> None:
        self._console = console
        self._quiet = quiet
        self._listeners = listeners
        self._bar = Progress(
            TextColumn("{task.description:<8}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        self._stage = ""
        self._total = self._done = self._before = self._dropped = self._lost = 0
        self._repeated = 0
        self._reasons = Counter[str]()
        self._can_drop, self._waiting = True, False
        self._running: dict[int, SoFar] = {}
        self._started = self._last_line = self._shown = 0.0
        self._made = time.monotonic()
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()
        self._tell(
            "end", error=None if error is None else visible(str(error) or type(error).__name__)
        )

    def begin(self, stage: str, *, total: int, done: int, drops: bool = True) -> None:
        """Begin a stage; an earlier run has finished ``done`` of its samples.

        Args:
            stage: its name.
            total: what is to be done.
            done: what is done already.
            drops: whether it can drop any, and so says how many it has dropped.
        """
        self._stage, self._total, self._done, self._before = stage, total, done, done
        self._reasons, self._dropped, self._lost = Counter(), 0, 0
        self._repeated = 0
        self._can_drop, self._waiting = drops, False
        self._running = {}
        self._started = self._last_line = time.monotonic()
        self._task = self._bar.add_task(stage, total=total, completed=done, note="")
        self._tell("stage", **self._figures(done))
        if done >= total:
            self._line("already done" if total else "nothing to do")

    def beside(self) -> Self:
        """A progress object for another stage that runs at the same time."""
        return copy.copy(self)

    @property
    def is_quiet(self) -> bool:
        """True if the user asked for no progress."""
        return self._quiet

    @property
    def total_s(self) -> float:
        """Seconds since the work began."""
        return time.monotonic() - self._made

    def note(self, text: str) -> None:
        """Print a line that stays on the screen."""
        self._tell("note", text=text)
        self._console.print(visible(f"glit: {text}"), soft_wrap=True, markup=False)

    def loading(self, model: str) -> None:
        """Workers start and load a model; the empty text for none. Over with :meth:`ready`, or with
        the first samples that are finished."""
        self._waiting = True
        if self._task is not None:
            self._bar.reset(
                self._task,
                start=False,  # an unstarted bar pulses
                completed=self._done,
                note=f"loading {escape(visible(model))}" if model else "starting",
            )
        if model:
            self._line(f"loading {model}")
            self._tell("loading", stage=self._stage, model=model)

    def ready(self) -> None:
        """Mark the workers as ready: rate and time left count from here."""
        self._waiting, self._before = False, self._done
        self._started = self._last_line = time.monotonic()
        if self._task is not None:
            self._bar.start_task(self._task)
            self._bar.update(self._task, note="")

    def moved(self, unit: Any, beat: SoFar) -> None:
        """Update the progress of a unit; it falls if the unit started again."""
        self._running[unit.index] = beat
        if time.monotonic() - self._shown >= _SHOW_EVERY_S:  # it looks at all units
            self._show()

    def finished(
        self, unit: Any, samples: int, drops: Mapping[str, int], *, requests_repeated: int = 0
    ) -> None:
        """Mark a unit as finished, with its samples, its drops by reason, and the requests to a
        server that were sent again."""
        self._running.pop(unit.index, None)
        self._reasons.update(drops)
        self._repeated += requests_repeated
        self.advance(samples, sum(drops.values()))

    def lost(self) -> None:
        """Count a unit that another worker has to do again."""
        self._lost += 1

    def advance(self, samples: int, drops: int = 0) -> None:
        """Count further finished samples."""
        self._done += samples
        self._dropped += drops
        if self._waiting:
            self.ready()
        self._show()

    def _show(self) -> None:
        self._shown = time.monotonic()
        done = min(self._total, self._done + sum(beat.rows for beat in self._running.values()))
        figures = self._figures(done)
        note = self._note(figures)
        if self._task is not None:
            self._bar.update(self._task, completed=done, note=note)
        if time.monotonic() - self._last_line >= _LINE_EVERY_S or self._done >= self._total:
            self._tell("progress", **figures)
            self._line(note, done)

    def _figures(self, done: int) -> dict[str, Any]:
        """All that is known of the stage, as plain values."""
        seconds = max(time.monotonic() - self._started, 1e-6)
        rate = (done - self._before) / seconds
        beats = self._running.values()
        return {
            "stage": self._stage,
            "done": done,
            "total": self._total,
            "rate_per_s": rate,
            "seconds_left": (self._total - done) / rate if rate else None,
            "dropped": self._dropped + sum(beat.drops for beat in beats),
            "drops": dict(self._reasons),
            "units_running": len(beats),
            "units_lost": self._lost,
            "requests_repeated": self._repeated,
            "gpu_bytes": max((beat.gpu_memory for beat in beats if beat.gpu_memory), default=None),
        }

    def _note(self, figures: Mapping[str, Any]) -> str:
        rate, parts = figures["rate_per_s"], []
        if rate:
            parts.append(f"{rate:.1f}/s" if rate >= 0.95 else f"{1 / rate:.1f} s each")
        if 0 < figures["done"] < self._total and rate:
            parts.append(f"{duration(figures['seconds_left'])} left")
        if self._can_drop:
            parts.append(f"{figures['dropped']} dropped")
        if figures["gpu_bytes"]:
            used, whole = figures["gpu_bytes"]
            parts.append(f"GPU {used / 2**30:.1f} of {whole / 2**30:.0f} GiB")
        return ", ".join(parts)

    def _tell(self, event: str, **values: Any) -> None:
        for listener in self._listeners:
            listener({"event": event, **values})

    def _line(self, note: str, done: int | None = None) -> None:
        self._last_line = time.monotonic()
        if not self._quiet and not self._console.is_terminal:
            self._console.print(
                visible(
                    f"{self._stage:<8} {self._done if done is None else done}/{self._total}  {note}"
                ),
                highlight=False,
                soft_wrap=True,
                markup=False,
            )


def null_progress() -> StageProgress:
    """A progress object that shows nothing."""
    return StageProgress(Console(quiet=True), quiet=True)


@contextmanager
def status_reporter(console: Console, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A function that shows the current step: a spinner, or lines."""
    if quiet:
        yield lambda text: None
    elif console.is_terminal:
        with console.status("starting") as status:
            yield lambda text: status.update(escape(visible(text)))
    else:
        yield lambda text: console.print(
            visible(text), soft_wrap=True, markup=False, highlight=False
        )


def duration(seconds: float) -> str:
    """Format a length of time for people.

    >>> duration(42.4), duration(754), duration(11_100), duration(400_000)
    ('42 s', '13 min', '3 h 05 min', '4 d 15 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest:02} min"
    days, hours = divmod(round(minutes / 60), 24)
    return f"{days} d {hours} h"


def size(num_bytes: float) -> str:
    """Format a number of bytes for people.

    >>> size(512), size(936_416), size(40_728_226), size(15_100_000_000)
    ('512 bytes', '936 kB', '41 MB', '15.1 GB')
    """
    if num_bytes >= 1e9:
        return f"{num_bytes / 1e9:.1f} GB"
    if num_bytes >= 1e6:
        return f"{num_bytes / 1e6:.0f} MB"
    return f"{num_bytes / 1e3:.0f} kB" if num_bytes >= 1e4 else f"{num_bytes:.0f} bytes"
