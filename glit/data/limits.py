"""Limits on how much of a file from outside is in memory at once; see docs/security.md.

A small file can decode to any size, so each reader asks for the decoded size before it decodes.
"""

from __future__ import annotations

IMAGES_BYTES = 1 << 30
"""Most bytes of the decoded images of one row group."""

TABLE_BYTES = 1 << 28
"""Most bytes of all other columns of one row group."""

BATCH_BYTES = 1 << 26
"""Most bytes of a batch of rows, where a table is read in batches."""

CAPTION_CHARS = 50_000
"""Most characters of one caption, some ninety times DCI's average one."""
