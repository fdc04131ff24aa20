"""Models that compare regions with sentences. Every backend is made of ``(config, model)``."""

from __future__ import annotations

from glit.backends.base import Backend
from glit.backends.matchers.clip import CLIP

MATCHERS: dict[str, Backend] = {"clip": CLIP}
"""By the name that ``score.backend`` takes; none imports its engine before it is made."""
