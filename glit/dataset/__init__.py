"""A finished dataset on disk: reader, manifest, card, checks, SQL."""

from __future__ import annotations
