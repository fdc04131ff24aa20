"""Models that embed regions and sentences. Every backend is constructed with (config, model)."""

from __future__ import annotations

from glit.backends.base import Backend
from glit.backends.matchers.clip import CLIP
from glit.backends.region_files import MATCHER as FILE

MATCHERS: dict[str, Backend] = {"clip": CLIP, "file": FILE}
"""By their names in ``score.backend``; model libraries are imported when one is constructed."""
