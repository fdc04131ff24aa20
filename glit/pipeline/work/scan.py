"""The images of a source as they are now, with the stamps of the files beside them.

Images and the files beside them come in any order, as a store lists them. DuckDB brings them
together; it spills to disk, so memory does not grow with their number.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from glit.inputs.source import Source, entries
from glit.inputs.user_tables import brought_table
from glit.pipeline.work.tables import disk_errors
from glit.runtime.prefetch import batched
from glit.stages.plan import Plan
from glit.storage.duckdb_temp import quoted, spilling
from glit.storage.members import BAD_NAME, escaped, is_utf8, stem
from glit.storage.store import Entry, Store

BATCH = 65_536
"""Rows that are read or written at once."""
_FOUND = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("stamp", pa.string()),
        ("role", pa.int8()),
        ("stem", pa.string()),
    ]
)
_NOW = """
    CREATE VIEW now AS
    WITH listed AS (SELECT * FROM read_parquet('{file}', hive_partitioning = false)),
         alike AS (SELECT path FROM listed WHERE size <> {bad} AND contains(path, '\\x')),
         found AS (SELECT * REPLACE (CASE WHEN size = {bad} AND path IN (SELECT path FROM alike)
                                     THEN './' || path ELSE path END AS path) FROM listed),
         beside AS (SELECT stem, role, string_agg(size || ':' || stamp, ' ' ORDER BY path) AS stamp
                    FROM found WHERE role > 0 GROUP BY stem, role)
    SELECT found.path, size, found.stamp, {beside} AS beside
    FROM found {joins} WHERE found.role = 0
"""
_TEXTS = """
    SELECT path, bit_xor(caption)::VARCHAR AS stamp FROM (
        SELECT DISTINCT path, md5_number(caption) AS caption
        FROM read_parquet('{file}', hive_partitioning = false)
    ) GROUP BY path
"""
_TEXTS_OF_KINDS = _TEXTS.replace(
    "md5_number(caption)", "md5_number(coalesce(kind, '') || chr(10) || caption)"
)
_REGIONS = """
    SELECT path, md5(string_agg(region, chr(10) ORDER BY line)) AS stamp
    FROM read_parquet('{file}', hive_partitioning = false) GROUP BY path
"""
_STRAY = """
    SELECT count(DISTINCT path), min(DISTINCT path, $most)
    FROM read_parquet('{file}', hive_partitioning = false) AS texts
    ANTI JOIN now ON now.path = texts.path
"""
NOT_THERE = "-1:"
"""The stamp of a missing file beside an image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedFiles:
    """The files found, in a DuckDB with the view ``now``: path, size, stamp and beside,
    unsorted."""

    connection: duckdb.DuckDBPyConnection
    num_images: int
    captions: Path | None = None
    """Table of the user's captions, if they are read."""
    regions: Path | None = None
    """Table of the user's regions, if they are read."""
    hidden: Mapping[str, int] = field(default_factory=dict)
    """Images that were passed over, by the hidden or system folder that they are in."""

    def paths_without_image(self, table: Path, most: int) -> tuple[int, list[str]]:
        """The paths of a user's table that no image has: how many, and the first of them."""
        sql = _STRAY.format(file=quoted(table))
        total, first = self.connection.execute(sql, {"most": most}).fetchall()[0]
        return total, first or []


@contextlib.contextmanager
def images_now(work: Store, plan: Plan, source: Source) -> Iterator[ScannedFiles]:
    """The images of a source as they are now, with the stamps of all that the recipe reads beside
    them.

    Raises:
        RunError: nothing can be written there, of what happens meanwhile too.
    """
    beside, hidden = tuple(plan.suffixes.values()), Counter[str]()
    with (
        disk_errors(work.root),
        brought_table(plan.brought) as captions,
        brought_table(plan.regions) as regions,
        gathered(
            entries(source, sidecars=beside, work=work, hidden=hidden),
            Path(work.full("")) if work.is_local else None,
            num_beside=len(beside),
            captions=captions,
            regions=regions,
        ) as found,
    ):
        yield replace(found, hidden=hidden)


@contextlib.contextmanager
def gathered(
    found: Iterable[Entry],
    folder: Path | None,
    *,
    num_beside: int,
    captions: Path | None = None,
    regions: Path | None = None,
) -> Iterator[ScannedFiles]:
    """Images with the stamps of the files beside them.

    Names that are not valid UTF-8 are stored escaped (``\\udcff`` as ``\\xff``) with size -2, so
    that ingest can name them in a drop; where another file has that very name, as ``./`` and it.

    Args:
        found: images, and the files beside them by their roles.
        folder: a disk with room for all of them; None for the machine's own place.
        num_beside: kinds of files beside the images that are wanted.
        captions: table of the user's captions, if they are read.
        regions: table of the user's regions, if they are read.
    """
    with (
        tempfile.TemporaryDirectory(dir=folder) as within,
        spilling(within, memory="128MB") as connection,
    ):
        unsorted = Path(within) / "unsorted.parquet"
        total = _write_batches(found, unsorted, stems=bool(num_beside))
        connection.execute("SET preserve_insertion_order = true")
        several = captions is not None and "kind" in pq.read_schema(captions).names
        texts = _TEXTS_OF_KINDS if several else _TEXTS
        connection.execute(_now(unsorted, num_beside, {texts: captions, _REGIONS: regions}))
        yield ScannedFiles(
            connection=connection, num_images=total, captions=captions, regions=regions
        )


def _now(file: Path, num_beside: int, tables: Mapping[str, Path | None]) -> str:
    kinds = range(1, num_beside + 1)
    stamps = [f"coalesce(beside_{n}.stamp, '{NOT_THERE}')" for n in kinds]
    joins = [
        f"LEFT JOIN beside AS beside_{n} ON beside_{n}.stem = found.stem AND beside_{n}.role = {n}"
        for n in kinds
    ]
    for number, (sql, table) in enumerate(tables.items()):
        if table is not None:
            name, rows = f"given_{number}", sql.format(file=quoted(table))
            stamps.append(f"coalesce({name}.stamp, '{NOT_THERE}')")
            joins.append(f"LEFT JOIN ({rows}) AS {name} ON {name}.path = found.path")
    beside = f"[{', '.join(stamps)}]::VARCHAR[]"
    return _NOW.format(file=quoted(file), bad=BAD_NAME, beside=beside, joins=" ".join(joins))


def _write_batches(found: Iterable[Entry], target: Path, *, stems: bool) -> int:
    """All that was found, unsorted; how many of them are images."""
    total = 0
    with pq.ParquetWriter(target, _FOUND, compression="lz4") as writer:
        for batch in batched(found, BATCH):
            paths = [entry.path for entry in batch]
            sizes = [entry.size for entry in batch]
            roles = [entry.role for entry in batch]
            for index, path in () if "".join(paths).isascii() else enumerate(paths):
                if not is_utf8(path):
                    paths[index], sizes[index] = escaped(path), BAD_NAME
            columns = {
                "path": paths,
                "size": sizes,
                "stamp": [entry.stamp for entry in batch],
                "role": roles,
                "stem": [stem(path) for path in paths] if stems else pa.nulls(len(paths)),
            }
            writer.write_table(pa.table(columns, schema=_FOUND))
            total += roles.count(0)
    return total
