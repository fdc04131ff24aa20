"""Models that embed regions and sentences. Every backend is constructed with (config, model)."""

from __future__ import annotations

from glit.models.backends.base import Backend
from glit.models.backends.given import MATCHER as FILE
from glit.models.backends.given import PROVIDED_MATCHER as PROVIDED
from glit.models.backends.matchers.clip import CLIP

MATCHERS: dict[str, Backend] = {"clip": CLIP, "file": FILE, "provided": PROVIDED}
"""By their names in ``score.backend``; model libraries are imported when one is constructed."""
