"""Progress of long work: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

_LINE_EVERY_S = 15.0


class StageProgress:
    """Samples done of one stage after the other: done/total, rate, time left, drops."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._bar = Progress(
            TextColumn("{task.description:<8}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:>9}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[dropped]}"),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        self._stage = ""
        self._total = self._done = self._before = self._drops = 0
        self._started = self._last_line = 0.0
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

    def begin(self, stage: str, *, total: int, done: int) -> None:
        """A stage begins, ``done`` of its samples finished by an earlier run."""
        self._stage, self._total, self._done, self._before = stage, total, done, done
        self._drops = 0
        self._started = self._last_line = time.monotonic()
        self._task = self._bar.add_task(stage, total=total, completed=done, rate="", dropped="")
        if done >= total:
            self._line("already done" if total else "nothing to do")

    def advance(self, samples: int, drops: int) -> None:
        """Some more samples are finished."""
        self._done += samples
        self._drops += drops
        if self._task is not None:
            dropped = f"{self._drops} dropped" if self._drops else ""
            self._bar.update(self._task, completed=self._done, rate=self._rate(), dropped=dropped)
        if time.monotonic() - self._last_line >= _LINE_EVERY_S or self._done >= self._total:
            self._line(f"{self._rate()}, {self._drops} dropped")

    def _rate(self) -> str:
        seconds = max(time.monotonic() - self._started, 1e-6)
        return f"{(self._done - self._before) / seconds:.1f}/s"

    def _line(self, note: str) -> None:
        self._last_line = time.monotonic()
        if not self._quiet and not self._console.is_terminal:
            self._console.print(
                f"{self._stage:<8} {self._done}/{self._total}  {note}",
                highlight=False,
                soft_wrap=True,
            )
