"""Duplicates across the whole input: the first in listing order stays.

Exact ones share a SHA-256 and are found by DuckDB over the ingest tables, out of core. Near
ones (optional) share a perceptual hash up to a number of bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import duckdb

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """An image left out because an earlier one is the same."""

    file: str
    """The ingest table that holds it."""
    row: int
    sample_id: str
    source_path: str
    kept_path: str
    kind: Literal["exact", "near"]


_LIVE = """
    SELECT filename AS file, file_row_number AS row, sample_id, source_path, perceptual_hash
    FROM read_parquet($files, filename = true, file_row_number = true, hive_partitioning = false)
    WHERE "drop" IS NULL
"""
_EXACT = f"""
    WITH live AS ({_LIVE}),
    ranked AS (
        SELECT *, row_number() OVER same AS place, first_value(source_path) OVER same AS kept
        FROM live WINDOW same AS (PARTITION BY sample_id ORDER BY source_path)
    )
    SELECT file, row, sample_id, source_path, kept FROM ranked
    WHERE place > 1 ORDER BY source_path
"""


def find_duplicates(files: Sequence[str], *, near_bits: int) -> list[Duplicate]:
    """Every image that repeats an earlier one, in listing order.

    Args:
        files: the ingest tables.
        near_bits: Hamming distance up to which hashes count as the same; -1 compares bytes only.
    """
    if not files:
        return []
    with duckdb.connect(config={"memory_limit": "2GB"}) as connection:
        query = connection.execute(_EXACT, {"files": list(files)})
        exact = [
            Duplicate(
                file=file, row=row, sample_id=sample_id, source_path=path, kept_path=kept,
                kind="exact",
            )
            for file, row, sample_id, path, kept in query.fetchall()
        ]  # fmt: skip
        if near_bits < 0:
            return exact
        repeats = {(duplicate.file, duplicate.row) for duplicate in exact}
        live = connection.execute(f"{_LIVE} ORDER BY source_path", {"files": list(files)})
        images = (
            Seen(file=file, row=row, sample_id=sample_id, source_path=path, perceptual_hash=value)
            for file, row, sample_id, path, value in iter(live.fetchone, None)
            if (file, row) not in repeats
        )
        near = near_duplicates(images, max_bits=near_bits)
    return sorted([*exact, *near], key=lambda duplicate: duplicate.source_path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A usable image as the search for near-duplicates sees it."""

    file: str
    row: int
    sample_id: str
    source_path: str
    perceptual_hash: int


def near_duplicates(images: Iterable[Seen], *, max_bits: int) -> list[Duplicate]:
    """Images within ``max_bits`` Hamming distance of an earlier kept one, in the given order.

    Exact for any distance: hashes that differ in at most k bits agree in one of k + 1 bands
    (pigeonhole), so only images that share a band are compared.
    """
    width = 64 // (max_bits + 1)
    shifts = [index * width for index in range(max_bits + 1)]
    buckets: list[dict[int, list[int]]] = [{} for _ in shifts]
    hashes: list[int] = []
    paths: list[str] = []
    found: list[Duplicate] = []
    for image in images:
        value = image.perceptual_hash & 0xFFFF_FFFF_FFFF_FFFF
        bands = [(value >> shift) & ((1 << width) - 1) for shift in shifts]
        pairs = list(zip(bands, buckets, strict=True))
        near = {index for band, bucket in pairs for index in bucket.get(band, ())}
        close = [index for index in near if (hashes[index] ^ value).bit_count() <= max_bits]
        if close:
            found.append(
                Duplicate(
                    file=image.file, row=image.row, sample_id=image.sample_id,
                    source_path=image.source_path, kept_path=paths[min(close)], kind="near",
                )
            )  # fmt: skip
            continue
        for band, bucket in pairs:
            bucket.setdefault(band, []).append(len(hashes))
        hashes.append(value)
        paths.append(image.source_path)
    return found
