"""Models that embed regions and sentences. Every backend is constructed with (config, model)."""

from __future__ import annotations

from glit.backends.base import Backend
from glit.backends.matchers.clip import CLIP

MATCHERS: dict[str, Backend] = {"clip": CLIP}
"""By their names in ``score.backend``; model libraries are imported when one is constructed."""
