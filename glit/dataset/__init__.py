"""A finished dataset on disk: its manifest, its card, its checks, and questions to it."""

from __future__ import annotations
