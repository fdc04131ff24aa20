"""What is compared: one work, and the ways in which packages do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Work = Callable[[], Any]
"""Does the work that is timed; returns its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One package's way of doing some work."""

    name: str
    prepare: Callable[[Path, Path], Work]
    """Of the folder of inputs and a folder to write into: imports, loads, and returns the work."""
    package: str = "glit"
    note: str = ""


def same(inputs: Path, answer: Any, ours: Any) -> str:
    """Whether an answer is the one of glit."""
    if answer is None:
        return "not compared"
    return "the same" if answer == ours else "differs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A work in words, and who does it; glit first."""

    title: str
    ways: tuple[Way, ...]
    make: Callable[[Path], None] = lambda inputs: None
    """Makes further inputs, once."""
    needs: str = ""
    """A file in the folder of inputs without which the work is left out."""
    read: Callable[[Any], Any] = lambda answer: answer
    """Reads what the work returned, after it was timed: plain values to compare."""
    judge: Callable[[Path, Any, Any], str] = same
    """Of the folder of inputs, an answer and the one of glit: how good the answer is."""
