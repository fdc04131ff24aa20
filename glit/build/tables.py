"""Stage tables: one Parquet file for a stage and a chunk, rows as records.

A row is a result or a drop. Reading joins nothing: :func:`glit.build.work.Work.samples` puts the
tables of several stages together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from glit.records import Box, Caption, Drop, Matches, Pair, Region, Sample, Sentence
from glit.schema import stage_schema

META_ROWS = b"glit.rows"
META_DROPS = b"glit.drops"


def write_parquet(table: pa.Table, path: Path, **options: Any) -> None:
    """Write with settings pinned, so that equal tables give equal bytes."""
    pq.write_table(table, path, **{**PINNED, **options})


PINNED: dict[str, Any] = {
    "version": "2.6",
    "data_page_version": "1.0",
    "compression": "zstd",
    "compression_level": 3,
    "use_dictionary": False,
    "write_statistics": True,
    "write_page_index": True,
    "store_schema": True,
}


def stage_row(stage: str, sample_id: str, outcome: Sample | Drop) -> dict[str, Any]:
    """One row of a stage's table."""
    if isinstance(outcome, Drop):
        return {"sample_id": sample_id, "drop": dataclasses.asdict(outcome)}
    return {"sample_id": sample_id, **_PAYLOADS[stage](outcome)}


def caption_payload(sample: Sample) -> dict[str, Any]:
    """The caption's columns."""
    assert sample.caption is not None
    source = dataclasses.asdict(sample.caption)
    return {"caption": source.pop("text"), "caption_source": source}


def sentences_payload(sample: Sample) -> dict[str, Any]:
    """The sentences' column."""
    assert sample.sentences is not None
    return {"sentences": [dataclasses.asdict(sentence) for sentence in sample.sentences]}


def regions_payload(sample: Sample) -> dict[str, Any]:
    """The regions' column, boxes flat."""
    assert sample.regions is not None
    return {"regions": [_flat_region(region) for region in sample.regions]}


def _flat_region(region: Region) -> dict[str, Any]:
    flat = dataclasses.asdict(region)
    return {**flat.pop("box"), **flat}


def matches_payload(sample: Sample) -> dict[str, Any]:
    """Similarities and pairs."""
    assert sample.matches is not None
    return {
        "similarity": list(sample.matches.similarity),
        "pairs": [dataclasses.asdict(pair) for pair in sample.matches.pairs],
    }


_PAYLOADS = {
    "caption": caption_payload,
    "split": sentences_payload,
    "propose": regions_payload,
    "match": matches_payload,
}


def with_payload(stage: str, sample: Sample, row: dict[str, Any]) -> Sample:
    """The sample with a stage's columns read back in."""
    if stage == "caption":
        caption = Caption(text=row["caption"], **row["caption_source"])
        return dataclasses.replace(sample, caption=caption)
    if stage == "split":
        sentences = tuple(Sentence(**value) for value in row["sentences"])
        return dataclasses.replace(sample, sentences=sentences)
    if stage == "propose":
        return dataclasses.replace(sample, regions=tuple(map(_region, row["regions"])))
    assert stage == "match", stage
    pairs = tuple(Pair(**value) for value in row["pairs"])
    matches = Matches(similarity=tuple(row["similarity"]), pairs=pairs)
    return dataclasses.replace(sample, matches=matches)


def _region(value: dict[str, Any]) -> Region:
    box = Box(x0=value["x0"], y0=value["y0"], x1=value["x1"], y1=value["y1"])
    return Region(box=box, score=value["score"], label=value["label"], source=value["source"])


def stage_table(stage: str, rows: Sequence[dict[str, Any]]) -> pa.Table:
    """The Arrow table of a chunk, with its counts in the file's metadata."""
    drops: dict[str, int] = {}
    for row in rows:
        if row.get("drop"):
            reason = row["drop"]["reason"]
            drops[reason] = drops.get(reason, 0) + 1
    counts = ",".join(f"{reason}={number}" for reason, number in sorted(drops.items()))
    schema = stage_schema(stage).with_metadata(
        {META_ROWS: str(len(rows)).encode(), META_DROPS: counts.encode()}
    )
    return pa.Table.from_pylist(list(rows), schema=schema)


def read_rows(path: Path) -> dict[str, dict[str, Any]]:
    """Rows of a stage table by ``sample_id``, in file order."""
    return {row["sample_id"]: row for row in pq.ParquetFile(path).read().to_pylist()}


def read_counts(path: Path) -> tuple[int, dict[str, int]]:
    """Rows and drops by reason, from the file's footer alone."""
    metadata = pq.read_metadata(path).metadata or {}
    drops = {}
    for item in filter(None, metadata.get(META_DROPS, b"").decode().split(",")):
        reason, _, number = item.partition("=")
        drops[reason] = int(number)
    return int(metadata[META_ROWS]), drops
