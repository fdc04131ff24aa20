"""Command lines of glit in forked processes: what they import is imported once, for all of them.

``python warm.py`` answers lines of JSON, each ``{"words", "folder", "output"}``, with exit codes.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


class Warm:
    """A process that has imported glit, torch and transformers."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, words: list[str], folder: Path, output: Path) -> int:
        """Exit code of one command line; what it writes goes to a file."""
        asked = {"words": words, "folder": str(folder), "output": str(output)}
        assert self._process.stdin and self._process.stdout
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._process.communicate()


@contextlib.contextmanager
def warm() -> Iterator[Warm]:
    """One, for as long as it is needed."""
    with contextlib.closing(Warm()) as process:
        yield process


def needs_a_shell(line: str) -> bool:
    """Whether a line is more than words and quotes."""
    return bool(set(QUOTED.sub("", line)) & set("|<>&;$*?~`"))


def serve() -> None:
    import torch
    import transformers

    import glit.cli.main

    torch.set_num_threads(1)  # a pool of them does not survive a fork
    names = ("CLIPModel", "CLIPImageProcessor", "CLIPTokenizer", "YolosForObjectDetection")
    assert all(getattr(transformers, name) for name in names) and glit.cli.main
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _become(json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(asked: dict[str, Any]) -> None:
    """The command line, and the end of this process."""
    from glit.cli.main import main

    os.chdir(asked["folder"])
    output = os.open(asked["output"], os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for mine, its in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(mine, its)
    sys.argv = ["glit", *asked["words"]]
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - a user would see its stack trace
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve()
