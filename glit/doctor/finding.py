"""The result of one check."""

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
    """The action to take; empty where there is none."""
