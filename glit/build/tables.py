"""Stage tables: one Parquet file for a stage and a chunk; a row is a result or a drop."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from glit.errors import UserError
from glit.records import Drop, Sample
from glit.rows import drop_row
from glit.schema import Columns, stage_schema
from glit.stages.base import Stage
from glit.storage import Store

META_ROWS = b"glit.rows"
META_DROPS = b"glit.drops"
_READERS = 8


def stage_row(stage: type[Stage], sample_id: str, outcome: Sample | Drop) -> dict[str, Any]:
    """One row of a stage's table."""
    if isinstance(outcome, Drop):
        return {"sample_id": sample_id, "drop": drop_row(outcome)}
    return {"sample_id": sample_id, **stage.row(outcome)}


def stage_table(columns: Columns, rows: Sequence[dict[str, Any]]) -> pa.Table:
    """The Arrow table of a chunk, with its counts in the file's metadata."""
    drops = drops_by_reason(rows)
    counts = ",".join(f"{reason}={number}" for reason, number in sorted(drops.items()))
    schema = stage_schema(columns).with_metadata(
        {META_ROWS: str(len(rows)).encode(), META_DROPS: counts.encode()}
    )
    return pa.Table.from_pylist(list(rows), schema=schema)


def drops_by_reason(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """How many of the rows are drops, by reason."""
    drops: dict[str, int] = {}
    for row in rows:
        if row.get("drop"):
            reason = row["drop"]["reason"]
            drops[reason] = drops.get(reason, 0) + 1
    return drops


@contextlib.contextmanager
def table_file(store: Store, name: str) -> Iterator[Path]:
    """A local path of a table, to be read within the block.

    Raises:
        UserError: the file is damaged, or no table of ours.
    """
    try:
        with store.local_copy(name) as path:
            yield path
    except (KeyError, OSError, pa.ArrowException) as error:
        raise UserError(
            f"{store.root}/{name}: not a table of this glit, or damaged; remove it and run "
            "glit build again"
        ) from error


def read_rows(path: Path) -> dict[str, dict[str, Any]]:
    """Rows of a stage table by ``sample_id``, in file order."""
    return {row["sample_id"]: row for row in pq.ParquetFile(path).read().to_pylist()}


def sum_counts(store: Store, names: Iterable[str]) -> tuple[int, dict[str, int]]:
    """Rows and drops by reason of many tables together; footers only, read by threads.

    Raises:
        UserError: a file is damaged, or no table of ours.
    """

    def one(name: str) -> tuple[int, dict[str, int]]:
        with table_file(store, name) as path:
            return read_counts(path)

    total, drops = 0, {}
    with ThreadPoolExecutor(_READERS) as pool:
        for rows, reasons in pool.map(one, names, chunksize=64):
            total += rows
            for reason, number in reasons.items():
                drops[reason] = drops.get(reason, 0) + number
    return total, drops


def read_counts(path: Path) -> tuple[int, dict[str, int]]:
    """Rows and drops by reason, from the file's footer alone."""
    metadata = pq.read_metadata(path).metadata or {}
    drops = {}
    for item in filter(None, metadata.get(META_DROPS, b"").decode().split(",")):
        reason, _, number = item.partition("=")
        drops[reason] = int(number)
    return int(metadata[META_ROWS]), drops
