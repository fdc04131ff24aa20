"""Command lines of glit in forked processes: what they import is imported once, for all of them."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


class Warm:
    """A process that has imported glit, torch and transformers; it is started when first asked."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(
        self,
        words: Sequence[str],
        folder: Path,
        output: Path,
        *,
        environment: Mapping[str, str] | None = None,
        paths: Sequence[Path] = (),
    ) -> int:
        """Exit code of one command line; what it writes goes to a file.

        Args:
            words: of the command line, without ``glit``.
            folder: where it runs.
            output: the file for both of its streams.
            environment: variables that are set for it alone.
            paths: folders whose packages it finds, too.
        """
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tools.forked"], cwd=ROOT, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
        asked = {
            "words": list(words), "folder": str(folder), "output": str(output),
            "environment": dict(environment or {}), "paths": [str(path) for path in paths],
        }  # fmt: skip
        assert self._process.stdin and self._process.stdout
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def said(self, words: Sequence[str], folder: Path, *, code: int = 0, **how) -> str:
        """What a command line that ends with this code writes."""
        output = folder / "output-of-a-line"
        found = self.run(words, folder, output, **how)
        said = output.read_text(encoding="utf-8")
        output.unlink()
        assert found == code, f"glit {' '.join(words)}: {found}\n{said[-3000:]}"
        return said

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.communicate()


@contextlib.contextmanager
def warm() -> Iterator[Warm]:
    """One, for as long as it is needed."""
    with contextlib.closing(Warm()) as process:
        yield process


def needs_a_shell(line: str) -> bool:
    """Whether a line is more than words and quotes."""
    return bool(set(QUOTED.sub("", line)) & set("|<>&;$*?~`"))
