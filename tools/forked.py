"""Command lines of glit in forked processes, which need not import anything anew.

``python -m tools.forked`` answers lines of JSON, each ``{"words", "folder", "output"}``, with exit
codes; ``environment`` and ``paths`` are variables and folders of packages for that line alone.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import glit


def warm_up() -> None:
    """Import what command lines need, once: every module of glit, and what they import when they
    run; torch has one thread, as a pool of them does not survive a fork."""
    import pandas
    import pyarrow.dataset
    import torch
    import transformers

    for module in pkgutil.walk_packages(glit.__path__, "glit."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    torch.set_num_threads(1)
    names = ("CLIPModel", "CLIPImageProcessor", "CLIPTokenizer", "YolosForObjectDetection",
             "LlavaNextForConditionalGeneration")  # fmt: skip
    assert all(getattr(transformers, name) for name in names) and pandas and pyarrow.dataset


def start(
    words: Sequence[str],
    folder: Path,
    output: Path,
    *,
    before: Callable[[], None] | None = None,
) -> int:
    """Number of the process that runs a command line.

    Args:
        words: of the command line, without ``glit``.
        folder: where it runs.
        output: the file that takes both of its streams; it reads nothing.
        before: done in the process before the command line.
    """
    child = os.fork()
    if not child:
        _become(words, folder, output, before)
    return child


def ended(child: int, most_s: float) -> int | None:
    """Its exit code, below zero for a signal; None where it took too long and was killed."""
    deadline, killed = time.monotonic() + most_s, False
    while (status := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline and not killed:
            os.kill(child, signal.SIGKILL)
            killed = True
        time.sleep(0.01)
    return None if killed else os.waitstatus_to_exitcode(status[1])


def _become(
    words: Sequence[str], folder: Path, output: Path, before: Callable[[], None] | None
) -> None:
    """The command line, and the end of this process."""
    code = 1
    try:
        os.chdir(folder)
        written = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for mine, its in ((nothing, 0), (written, 1), (written, 2)):
            os.dup2(mine, its)
        sys.argv = ["glit", *words]
        from glit.cli.main import main

        if before is not None:
            before()
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - a user would see its stack trace, so it is the result
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _set(asked: dict[str, Any]) -> None:
    """What one line alone finds otherwise than the others."""
    os.environ.update(asked.get("environment", {}))
    sys.path[:0] = asked.get("paths", [])


def serve() -> None:
    """Run one command line after the other, as they are asked for."""
    warm_up()
    gc.freeze()  # or each of them would copy what the collector looks through
    for line in sys.stdin:
        asked = json.loads(line)
        child = start(
            asked["words"],
            Path(asked["folder"]),
            Path(asked["output"]),
            before=partial(_set, asked),
        )
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
