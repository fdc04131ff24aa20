"""Run each measurement of a benchmark once, in a process of its own, within a time limit.

A measurement is a function that yields rows, which are plain dicts. It is run

- to its end, and each row is in a file as soon as it is yielded (:func:`record`);
- as a command with a time limit and a log (:func:`run_command`);
- in turn with others, in a process that stays (:class:`Worker`);
- or not at all, where a file has its result already (:func:`kept`).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from glit.errors import GlitError, RunError
from glit.runtime.tables import Page, markdown

Row = dict[str, Any]
_TAIL = 400
"""Characters of a failed process's last words."""


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    os.replace(part, path)


def write_report(folder: Path, name: str, values: Any, page: Page) -> list[Path]:
    """Write ``NAME.json`` and ``NAME.md``; their paths."""
    paths = [folder / f"{name}.json", folder / f"{name}.md"]
    write_json(paths[0], values)
    paths[1].write_text(markdown(page), encoding="utf-8")
    return paths


def kept(path: Path, measure: Callable[[], Any]) -> Any:
    """Return the content of a JSON file; measured and written first if it is not there."""
    if not path.is_file():
        write_json(path, measure())
    return json.loads(path.read_text(encoding="utf-8"))


def note(text: str) -> Row:
    """A row that is a sentence below the table."""
    return {"note": text}


def record(rows: Iterable[Row], path: Path) -> None:
    """Write figures and notes, anew after every row."""
    found: dict[str, Any] = {"rows": [], "notes": []}
    write_json(path, found)
    for row in rows:
        if "note" in row:
            found["notes"].append(row["note"])
        else:
            found["rows"].append(row)
        write_json(path, found)


def recorded(path: Path) -> dict[str, Any]:
    """Return the rows and notes that :func:`record` has written so far; none if there is no such
    file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"rows": [], "notes": []}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The end of a process."""

    code: int | None
    """Its exit code, below zero for a signal; None where its time was over."""
    seconds: float
    last_words: str
    """The last line of its log."""

    @property
    def failure(self) -> str:
        """In one line; empty where all went well."""
        if self.code is None:
            return f"ended after {self.seconds:.0f} s, its time"
        if self.code == 0:
            return ""
        how = f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}"
        return f"{how}: {self.last_words[:_TAIL]}" if self.last_words else how


def run_command(
    words: Sequence[str],
    log: Path,
    *,
    most_s: float | None = None,
    on_interrupt: signal.Signals = signal.SIGKILL,
) -> Ended:
    """Run ``python -m WORDS`` in a session of its own, and end all that it started.

    Args:
        words: module and arguments.
        log: what it prints is appended here.
        most_s: after so many seconds it is killed; None waits for it.
        on_interrupt: sent to it, once, when this process is interrupted; it is then waited for.
    """
    started = time.monotonic()
    code = None
    with log.open("ab") as output:
        # a session of its own: Ctrl-C comes here alone
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(most_s)
        except subprocess.TimeoutExpired:
            pass
        except BaseException:
            process.send_signal(on_interrupt)
            process.wait()
            raise
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = lines[-1].strip() if lines else ""
    return Ended(code=code, seconds=time.monotonic() - started, last_words=last)


def in_own_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """Return a function's result from a process that is started afresh and ends with it."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


class ProcessWorker:
    """An object in a process of its own, whose methods are called from here.

    Processes are forked from a server that has imported the libraries and done nothing else: each
    is as clean as a spawned one, without importing torch every time. Ctrl-C reaches this process
    alone.

    Args:
        name: for messages.
        make: makes the object, there.
        argument: what it is made of.
        preload: modules that the server imports.
    """

    def __init__(
        self, name: str, make: Callable[[Any], Any], argument: Any, *, preload: Sequence[str] = ()
    ) -> None:
        self.name = name
        context = get_context("forkserver")
        context.set_forkserver_preload(list(preload))
        deaf = {"initializer": signal.signal, "initargs": (signal.SIGINT, signal.SIG_IGN)}
        self._pool = ProcessPoolExecutor(1, mp_context=context, **deaf)
        self.pid: int = self._pool.submit(os.getpid).result()
        self._made = self._last = self._pool.submit(_make, make, argument)

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the object and return its result.

        Raises:
            GlitError: it failed, or the process died.
        """
        self.wait()
        self._last = self._pool.submit(_call, method, arguments)
        return self._result(self._last)

    def wait(self) -> None:
        """Until the object is there.

        Raises:
            GlitError: as for :meth:`call`.
        """
        self._result(self._made)

    def _result(self, future: Future[Any]) -> Any:
        try:
            return future.result()
        except BrokenProcessPool as error:
            raise RunError(
                f"{self.name}: its process died; if memory is short, take fewer images with "
                "--images or smaller --weights"
            ) from error
        except Exception as error:
            told = error if isinstance(error, GlitError) else f"{type(error).__name__}: {error}"
            failure = GlitError(f"{self.name}: {told}")
            failure.exit_code = getattr(error, "exit_code", 1)
            raise failure from error

    def close(self) -> None:
        """End the process, whatever it does; an idle one in order, with its locks."""
        if not self._last.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self._pool.shutdown()


_made: Any = None
"""The object of a worker's process."""


def _make(make: Callable[[Any], Any], argument: Any) -> None:
    global _made
    warnings.simplefilter("ignore")  # several processes share one terminal
    _made = make(argument)


def _call(method: str, arguments: Sequence[Any]) -> Any:
    return getattr(_made, method)(*arguments)
