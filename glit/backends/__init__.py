"""Models behind small protocols. Backends know nothing of stages."""

from __future__ import annotations
