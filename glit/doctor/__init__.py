"""Whether a build would work on this machine, what it would take, and what to do."""

from __future__ import annotations
