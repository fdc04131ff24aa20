"""``glit`` in a process that leaves its peak memory in a file: ``... peak_rss FILE WORDS``.

What the system tells of a child's peak begins with its parent's, which has read whole galleries.
"""

from __future__ import annotations

import atexit
import runpy
import sys
from pathlib import Path

from glit.bench.lism_flism.machine import peak_mb


def main(file: Path, words: list[str]) -> None:
    """Run the command line; its exit code is this process's."""
    atexit.register(lambda: file.write_text(f"{peak_mb():.1f}\n", encoding="utf-8"))
    sys.argv = ["glit", *words]
    runpy.run_module("glit", run_name="__main__")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
