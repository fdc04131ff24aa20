"""A fault at the n-th thing a build does: inside the process that builds, by its own calls."""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from glit.models.backends.captioners.transformers_generate import TransformersCaptioner
from glit.models.backends.protocols import RawCaption
from glit.pipeline.stage_task import StageWorker
from glit.storage.store import Store

HANG_S = 600.0


class Tripwire:
    """Counts what happens, and does something at one of these events.

    Args:
        kind: of the events that count: ``file`` (before and after each step of a file's way to
            its place), ``write``, ``read``, ``sample`` or ``caption``.
        at: number of the event; 0 never comes.
        act: what is done then.
        times: and with the events after it.
        tally: takes the numbers of events at the end of the process.
    """

    def __init__(
        self,
        kind: str,
        at: int,
        act: Callable[[], Any],
        *,
        times: int = 1,
        tally: Path | None = None,
    ) -> None:
        self.kind, self.at, self.act, self.times, self.tally = kind, at, act, times, tally
        self.counted: Counter[str] = Counter()
        """Events so far, by kind."""

    def passed(self, kind: str) -> Any:
        """One more of a kind."""
        self.counted[kind] += 1
        due = kind == self.kind and self.at and 0 <= self.counted[kind] - self.at < self.times
        return self.act() if due else None

    def install(self) -> None:
        """Into this process, which ends with the build."""
        if self.tally is not None:
            atexit.register(self._write, self.tally)
        for name in ("move", "remove"):
            setattr(Store, name, self._counted(getattr(Store, name), "file", "file"))
        Store.atomic = self._atomic(Store.atomic)
        Store.read = self._counted(Store.read, "read")
        StageWorker.rows = self._each(StageWorker.rows)
        TransformersCaptioner.caption = self._captions(TransformersCaptioner.caption)

    def _write(self, path: Path) -> None:
        path.write_text(json.dumps(self.counted), encoding="utf-8")

    def _counted(self, method: Callable, before: str, after: str = "") -> Callable:
        def wrapped(*arguments: Any) -> Any:
            self.passed(before)
            result = method(*arguments)
            if after:
                self.passed(after)
            return result

        return wrapped

    def _each(self, method: Callable) -> Callable:
        def wrapped(*arguments: Any) -> Iterator[dict[str, Any]]:
            for row in method(*arguments):
                self.passed("sample")
                yield row

        return wrapped

    def _atomic(self, method: Callable) -> Callable:
        @contextlib.contextmanager
        def wrapped(store: Store, path: str) -> Iterator[Path]:
            self.passed("file")
            with method(store, path) as temporary:
                yield temporary
                self.passed("file")
                self.passed("write")
            self.passed("file")

        return wrapped

    def _captions(self, method: Callable) -> Callable:
        def wrapped(captioner: Any, images: Sequence, **options: Any) -> list[RawCaption]:
            said = self.passed("caption")
            if said is not None:
                return [RawCaption(text=said, cut=False)] * len(images)
            return method(captioner, images, **options)

        return wrapped


def kill() -> None:
    """As kill -9, or a machine that loses its power."""
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt() -> None:
    """As Ctrl-C."""
    raise KeyboardInterrupt


def full_disk() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def bad_sector() -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def fail() -> None:
    raise ValueError("the captioner failed, as it was told to")


def hang() -> None:
    time.sleep(HANG_S)


def garbage() -> str:
    return "\x00\ufffd"
