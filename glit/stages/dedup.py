"""Duplicates across the whole input: of the same pictures the one with labels stays.

Exact ones share a SHA-256 and are found by DuckDB, which spills to disk; what is said of any of
them is said of the one that stays. Near ones (optional) share a perceptual hash up to a number of
bits, and colours.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from duckdb import DuckDBPyConnection

from glit.images.likeness import BEST_FIRST, same_colours
from glit.runtime.prefetch import batched
from glit.storage.duckdb_temp import spilling

VERSION = 1
NEAR_VERSION = 3
"""Version of the search for near-duplicates; 1 compared hashes alone, those of even pictures too,
and 2 kept the first in the order of the listing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """An image left out because another one is the same."""

    chunk: int
    row: int
    """Row of the chunk's ingest table."""
    sample_id: str
    source_path: str
    kept_path: str
    kind: Literal["exact", "near"]
    kept_chunk: int
    kept_row: int
    labels: str = ""
    """What identifies the captions, regions and files beside the image that count for the image
    that stays as well; empty for none."""


_SCHEMA = pa.schema(
    [
        ("chunk", pa.int64()),
        ("row", pa.int64()),
        ("series", pa.int64()),
        ("sample_id", pa.string()),
        ("source_path", pa.string()),
        ("said", pa.list_(pa.string())),
        ("alone", pa.int64()),
        ("pixels", pa.int64()),
        ("sharpness", pa.float64()),
        ("perceptual_hash", pa.int64()),
        ("colours", pa.binary()),
    ]
)
_COLUMNS = {field.name: field.type for field in _SCHEMA}
_MADE = ("chunk", "row", "alone", "pixels")
_TABLES_AT_ONCE = 64
_EXACT = """
    SELECT chunk, row, series, sample_id, source_path, said FROM live
    WHERE sample_id IN (SELECT sample_id FROM live GROUP BY sample_id HAVING count(*) > 1)
    ORDER BY sample_id, chunk, row
"""
_NEAR = f"""
    SELECT chunk, row, sample_id, source_path, labels, perceptual_hash, colours FROM (
        SELECT live.*, coalesce(joined.labels, alone) AS labels
        FROM live LEFT JOIN joined USING (chunk, row)
        ANTI JOIN repeats USING (chunk, row)
    ) WHERE perceptual_hash IS NOT NULL
    ORDER BY series, {", ".join(f"{name} DESC NULLS LAST" for name in BEST_FIRST)}, chunk, row
"""


def find_duplicates(
    tables: Iterable[tuple[int, pa.Table]], *, near_bits: int, spill: str | None = None
) -> list[Duplicate]:
    """Every image that repeats one that stays, in listing order.

    Of exact duplicates the one with most kinds of labels stays, of near ones the first by
    :data:`glit.images.likeness.BEST_FIRST`; in the end the first in listing order. An image of a
    series never gives way to one of a later series; but one that lacks labels, and so will be
    dropped, does not stand for a later one that has them.

    Args:
        tables: number and ingest table of every chunk; taken one after the other. The column
            ``series`` says which addition an image came with, and ``said`` what identifies its
            captions, regions and files beside it, each an empty text where it has none; both may be
            left out.
        near_bits: Hamming distance up to which hashes count as the same; -1 compares bytes only.
        spill: folder on a disk with room for what does not fit into memory.

    Raises:
        RunError: it has none.
    """
    with (
        tempfile.TemporaryDirectory(dir=spill) as folder,
        spilling(folder, memory="256MB") as connection,
    ):
        connection.register("ingested", _SCHEMA.empty_table())
        connection.execute("CREATE TABLE live AS SELECT * FROM ingested")
        for some in batched(map(_live, tables), _TABLES_AT_ONCE):
            connection.register("ingested", pa.concat_tables(some))
            connection.execute("INSERT INTO live SELECT * FROM ingested")
        exact: list[Duplicate] = []
        joined: list[tuple[_Twin, int]] = []
        rows = map(_twin, iter(connection.execute(_EXACT).fetchone, None))
        for _, group in groupby(rows, key=lambda twin: twin.sample_id):
            kept, duplicates = _stay(list(group))
            joined += kept
            exact += duplicates
        near = [] if near_bits < 0 else _near(connection, exact, joined, near_bits)
    return sorted([*exact, *near], key=lambda duplicate: (duplicate.chunk, duplicate.row))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Twin:
    """An image whose bytes another one has."""

    chunk: int
    row: int
    series: int
    sample_id: str
    source_path: str
    said: tuple[str, ...]


def _twin(row: tuple[Any, ...]) -> _Twin:
    chunk, number, series, sample_id, path, said = row
    return _Twin(
        chunk=chunk, row=number, series=series, sample_id=sample_id, source_path=path,
        said=tuple(said or ()),
    )  # fmt: skip


def _stay(twins: list[_Twin]) -> tuple[list[tuple[_Twin, int]], list[Duplicate]]:
    """Return those of equal images that stay, with their kinds of labels, and the others."""
    kept: list[tuple[_Twin, list[bool]]] = []
    left: list[Duplicate] = []
    for _, group in groupby(twins, key=lambda twin: twin.series):
        own = list(group)
        has = [any(said) for said in zip(*(twin.said for twin in own), strict=True)]
        first = next((one for one, known in kept if _covers(known, has)), None)
        stays = first or max(own, key=lambda twin: sum(map(bool, twin.said)))  # of equals the first
        if first is None:
            kept.append((stays, has))
        left += [
            Duplicate(
                chunk=twin.chunk, row=twin.row, sample_id=twin.sample_id,
                source_path=twin.source_path, kept_path=stays.source_path, kind="exact",
                kept_chunk=stays.chunk, kept_row=stays.row,
                labels=" ".join(twin.said) if first is None and any(twin.said) else "",
            )
            for twin in own if twin is not stays
        ]  # fmt: skip
    return [(twin, sum(has)) for twin, has in kept], left


def _covers(known: list[bool], wanted: list[bool]) -> bool:
    return all(one or not other for one, other in zip(known, wanted, strict=True))


def _near(
    connection: DuckDBPyConnection,
    exact: list[Duplicate],
    joined: list[tuple[_Twin, int]],
    bits: int,
) -> list[Duplicate]:
    """Near-duplicates among the images that repeat no other byte by byte."""
    columns = {
        "repeats": [(each.chunk, each.row) for each in exact],
        "joined": [(twin.chunk, twin.row, labels) for twin, labels in joined],
    }
    for name, rows in columns.items():
        names = ("chunk", "row", "labels")[: 2 + (name == "joined")]
        values = list(zip(*rows, strict=True)) or [()] * len(names)
        arrays = [pa.array(each, pa.int64()) for each in values]
        connection.register(name, pa.table(dict(zip(names, arrays, strict=True))))
    live = connection.execute(_NEAR)
    images = (
        Seen(
            chunk=chunk, row=row, sample_id=sample_id, source_path=path, labels=labels or 0,
            perceptual_hash=value, colours=colours,
        )
        for chunk, row, sample_id, path, labels, value, colours in iter(live.fetchone, None)
    )  # fmt: skip
    return list(near_duplicates(images, max_bits=bits))


def _live(item: tuple[int, pa.Table]) -> pa.Table:
    """The rows of a chunk that were not dropped."""
    chunk, table = item
    lacking = {"width": pa.int64(), "height": pa.int64(), **_COLUMNS}
    for name in lacking.keys() - {*table.column_names, *_MADE}:
        table = table.append_column(name, pa.nulls(len(table), lacking[name]))
    width, height = (
        table[name].cast(pa.int64()).fill_null(0).to_numpy() for name in ("width", "height")
    )
    alone = [sum(map(bool, said or ())) for said in table["said"].to_pylist()]
    table = table.append_column("alone", pa.array(alone, pa.int64()))
    table = table.append_column("pixels", pa.array(width * height))
    table = table.append_column("row", pa.array(np.arange(len(table))))
    table = table.append_column("chunk", pa.array(np.full(len(table), chunk)))
    return table.filter(table["drop"].is_null()).select(_SCHEMA.names).cast(_SCHEMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A usable image as the search for near-duplicates sees it."""

    chunk: int
    row: int
    sample_id: str
    source_path: str
    labels: int
    """Kinds of labels that it has."""
    perceptual_hash: int
    colours: bytes


def near_duplicates(images: Iterable[Seen], *, max_bits: int) -> Iterator[Duplicate]:
    """Yield images within ``max_bits`` Hamming distance of an earlier kept one of like colours, in
    the given order, the best first; one without labels stands for none that has some.

    Exact for any distance: hashes that differ in at most k bits agree in one of k + 1 bands
    (pigeonhole), so only images that share a band are compared.
    """
    width = 64 // (max_bits + 1)
    shifts = [index * width for index in range(max_bits + 1)]
    buckets: list[dict[int, list[int]]] = [{} for _ in shifts]
    kept: list[Seen] = []
    hashes: list[int] = []
    for image in images:
        value = image.perceptual_hash & 0xFFFF_FFFF_FFFF_FFFF
        bands = [(value >> shift) & ((1 << width) - 1) for shift in shifts]
        pairs = list(zip(bands, buckets, strict=True))
        near = {index for band, bucket in pairs for index in bucket.get(band, ())}
        close = [
            index
            for index in near
            if (hashes[index] ^ value).bit_count() <= max_bits
            and (kept[index].labels or not image.labels)
            and same_colours(kept[index].colours, image.colours)
        ]
        if close:
            stays = kept[min(close)]
            yield Duplicate(
                chunk=image.chunk, row=image.row, sample_id=image.sample_id,
                source_path=image.source_path, kept_path=stays.source_path, kind="near",
                kept_chunk=stays.chunk, kept_row=stays.row,
            )  # fmt: skip
            continue
        for band, bucket in pairs:
            bucket.setdefault(band, []).append(len(kept))
        kept.append(image)
        hashes.append(value)
