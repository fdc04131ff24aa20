"""Command lines of glit in forked processes: what they import is imported once, for all of them."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


class Warm:
    """A process that has imported glit, torch and transformers."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tools.forked"], cwd=ROOT, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

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
