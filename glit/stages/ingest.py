"""Ingest: read, hash and decode every file once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from glit.data.quality import sharpness
from glit.data.records import Drop, Sample
from glit.data.rows import drop_row
from glit.images import MAX_PIXELS, ImageError, decode
from glit.images.formats import OTHER_IMAGE_SUFFIXES, suffix_of
from glit.images.likeness import look
from glit.inputs.files import MOST_BYTES
from glit.inputs.rights import mining_of
from glit.plain import limited
from glit.recipes.config import RecipeTable, speed_only
from glit.runtime.prefetch import map_ahead
from glit.stages import dedup
from glit.stages.base import TableStep
from glit.stages.image_source import ImageSource
from glit.stages.plan import Plan
from glit.storage.members import REFUSED
from glit.storage.store import Entry, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestConfig(RecipeTable):
    """The limits on input images."""

    table: ClassVar = "ingest"
    chunk_size: int = speed_only(0, least=0)
    """Images per chunk, the unit of work and of resumption. 0 takes a sixteenth of the images,
    between 16 and 256, so that small jobs keep every worker busy."""
    max_pixels: int = MAX_PIXELS
    """Images with more pixels are dropped as ``too_large`` before they are decoded."""
    min_side: int = limited(16, least=1)
    """Images with a shorter side are dropped as ``too_small``."""
    near_duplicates: int = limited(-1, least=-1, most=16)
    """Two images count as duplicates if their perceptual hashes differ in at most this many of 64
    bits and their colours are alike; -1 turns it off. The one with captions and regions stays, of
    several such ones the larger, then the sharper. A picture too even to have such a hash is
    compared byte by byte."""


class Ingest(TableStep):
    """The entries of the listing as samples.

    Duplicates are found over all of its tables together, before any other step begins.
    """

    name = "ingest"
    version = 1 + dedup.VERSION
    reads = ()
    makes = ("image",)
    retryable = True
    config = IngestConfig
    columns = (
        ("source_path", pa.string()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("num_bytes", pa.int64()),
        ("perceptual_hash", pa.int64()),
        ("colours", pa.binary()),
        ("sharpness", pa.float32()),
        ("mining", pa.string()),
    )
    key = "source_path"

    def __init__(self, config: IngestConfig) -> None:
        self._config = config

    @classmethod
    def identity(cls, plan: Plan) -> Mapping[str, Any]:
        asked = plan.config(IngestConfig).near_duplicates >= 0
        return {"near_duplicates": dedup.NEAR_VERSION} if asked else {}

    @classmethod
    def open(cls, plan: Plan) -> Ingest:
        return cls(plan.config(IngestConfig))

    @classmethod
    def blank(cls, item: Entry) -> dict[str, Any]:
        return {"sample_id": "", "source_path": item.path, "num_bytes": item.size}

    def rows(self, items: Sequence[Entry], images: ImageSource) -> Iterator[dict[str, Any]]:
        return ingest(items, images.store, self._config)

    @classmethod
    def sample(cls, row: Mapping[str, Any]) -> Sample:
        """The sample of a row that is no drop."""
        known = ("sample_id", "source_path", "width", "height", "num_bytes")
        return Sample(**{name: row[name] for name in known})


def ingest(
    entries: Sequence[Entry], store: Store, config: IngestConfig, *, threads: int = 2
) -> Iterator[dict[str, Any]]:
    """Yield one row of the ingest table per entry, in order; files that cannot be used carry a
    drop."""
    with ThreadPoolExecutor(threads, thread_name_prefix="ingest") as pool:
        most = max(1, len(entries))
        yield from map_ahead(pool, lambda entry: _row(entry, store, config), entries, most=most)


def _row(entry: Entry, store: Store, config: IngestConfig) -> dict[str, Any]:
    row = Ingest.blank(entry)
    if entry.size in REFUSED:
        return _dropped(row, *REFUSED[entry.size])
    if entry.size > MOST_BYTES:
        return _dropped(row, "too_large", f"{entry.size} bytes, at most {MOST_BYTES} allowed")
    try:
        data = store.read(entry.path)
    except OSError as error:
        return _dropped(row, "unreadable", error.strerror or str(error))
    row["sample_id"] = hashlib.sha256(data).hexdigest()
    row["num_bytes"] = len(data)
    try:
        pixels = decode(data, max_pixels=config.max_pixels)
    except ImageError as error:
        suffix = suffix_of(entry.path)
        if error.reason == "not_an_image" and suffix in OTHER_IMAGE_SUFFIXES:
            message = f"a file {suffix}, which glit does not decode; convert it to JPEG or PNG"
            return _dropped(row, "unsupported_format", message)
        return _dropped(row, error.reason, str(error))
    except MemoryError:
        return _dropped(row, "too_large", "the decoded image does not fit in memory")
    height, width = pixels.shape[:2]
    if min(width, height) < config.min_side:
        return _dropped(
            row, "too_small", f"{width}x{height} pixels, both sides must be >= {config.min_side}"
        )
    row |= {"width": width, "height": height, "mining": mining_of(data)}
    if config.near_duplicates >= 0:
        seen, sharp = look(pixels), sharpness(pixels)
        row |= {"perceptual_hash": seen.hash, "colours": seen.colours, "sharpness": sharp}
    return row


def _dropped(row: dict[str, Any], reason: str, message: str) -> dict[str, Any]:
    return {**row, "drop": drop_row(Drop(reason=reason, message=message))}
