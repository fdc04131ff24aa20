"""What one look at the machine found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A line of ``glit doctor``."""

    about: str
    state: Literal["ok", "note", "fails"]
    """``fails`` where a build would not work."""
    found: str
    todo: str = ""
    """What to do; empty where nothing is."""


def size(num_bytes: float) -> str:
    """Bytes for people.

    >>> size(512), size(936_416), size(40_728_226), size(15_100_000_000)
    ('512 bytes', '936 kB', '41 MB', '15.1 GB')
    """
    if num_bytes >= 1e9:
        return f"{num_bytes / 1e9:.1f} GB"
    if num_bytes >= 1e6:
        return f"{num_bytes / 1e6:.0f} MB"
    return f"{num_bytes / 1e3:.0f} kB" if num_bytes >= 1e4 else f"{num_bytes:.0f} bytes"
