"""Ingest: read, hash and decode every file once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from glit.config import IngestConfig
from glit.images import ImageError, decode, perceptual_hash
from glit.records import Drop
from glit.storage import Entry, Store

VERSION = 1


def ingest(
    entries: Sequence[Entry], store: Store, config: IngestConfig, *, threads: int = 2
) -> Iterator[dict[str, Any]]:
    """One row of the ingest table per entry, in order; files that cannot be used carry a drop."""
    with ThreadPoolExecutor(threads, thread_name_prefix="ingest") as pool:
        yield from pool.map(lambda entry: _row(entry, store, config), entries)


def _row(entry: Entry, store: Store, config: IngestConfig) -> dict[str, Any]:
    row: dict[str, Any] = {"sample_id": "", "source_path": entry.path, "num_bytes": entry.size}
    if entry.size == -2:
        return _dropped(row, "bad_name", "rename the file to valid UTF-8")
    try:
        data = store.read(entry.path)
    except OSError as error:
        return _dropped(row, "unreadable", error.strerror or str(error))
    row["sample_id"] = hashlib.sha256(data).hexdigest()
    row["num_bytes"] = len(data)
    try:
        pixels = decode(data, max_pixels=config.max_pixels)
    except ImageError as error:
        return _dropped(row, error.reason, str(error))
    except MemoryError:
        return _dropped(row, "too_large", "the decoded image does not fit in memory")
    height, width = pixels.shape[:2]
    if min(width, height) < config.min_side:
        return _dropped(
            row, "too_small", f"{width}x{height} pixels, both sides must be >= {config.min_side}"
        )
    row |= {"width": width, "height": height}
    if config.near_duplicates >= 0:
        row["perceptual_hash"] = perceptual_hash(pixels)
    return row


def _dropped(row: dict[str, Any], reason: str, message: str) -> dict[str, Any]:
    drop = Drop(reason=reason, message=message)
    return {
        **row,
        "drop": {"reason": drop.reason, "message": drop.message, "attempt": drop.attempt},
    }
