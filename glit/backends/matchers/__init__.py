"""Models that compare regions with sentences."""

from __future__ import annotations
