"""What is made or read once: folders for all processes of a run, models and tokenizers for one."""

from __future__ import annotations

import atexit
import copy
import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock

_KEY = "GLIT_TESTS_SHARED"


def root() -> Path:
    """The folder that this process and all that it starts share; it goes with the first of them."""
    if _KEY not in os.environ:
        os.environ[_KEY] = made = tempfile.mkdtemp(prefix="glit-")
        atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(os.environ[_KEY])


def once(name: str, make: Callable[[Path], object]) -> Path:
    """The folder that ``make`` writes; another process waits for the one that does it."""
    folder, whole = root() / name, root() / f"{name}.whole"
    with FileLock(root() / f"{name}.lock"):
        if not whole.exists():
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            whole.touch()
    return folder


def copies_of_one(load: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of a folder, its last argument; every caller has a copy of his own of what
    it reads, and it reads again only what has changed."""

    @functools.lru_cache(maxsize=8)
    def read(words: tuple[Any, ...], options: tuple[Any, ...], files: tuple[Any, ...]) -> Any:
        return load(*words, **dict(options))

    @functools.wraps(load)
    def loaded(*words: Any, **options: Any) -> Any:
        stats = [(path.name, path.stat()) for path in sorted(Path(words[-1]).glob("*"))]
        files = tuple((n, s.st_ino, s.st_mtime_ns, s.st_size) for n, s in stats)
        return copy.deepcopy(read(words, tuple(options.items()), files))

    return loaded
