"""Check whether a build would work on this machine, and estimate its cost."""

from __future__ import annotations
