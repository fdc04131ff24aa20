"""Stage tables: one Parquet file for a stage and a chunk; a row is a result or a drop."""

from __future__ import annotations

import contextlib
import errno
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from glit.data.bounded_parquet import TooMuch
from glit.data.schema import Columns, stage_schema
from glit.errors import DamagedTableError, RunError, first_line
from glit.runtime.prefetch import batched, map_ahead
from glit.storage.checksummed_parquet import SealError, read_sealed, write_sealed
from glit.storage.store import Store

META_ROWS = b"glit.rows"
META_DROPS = b"glit.drops"
META_TOKENS = b"glit.tokens"
"""Tokens of prompts and answers that a model used for the table; only in tables of such models."""
_META_TWINS = b"glit.twins"
"""JSON object, from ``sample_id`` to a hash of the captions, regions and files that its exact
duplicates bring, and from which its row is made as well. Missing where no duplicate brings any."""
_READERS = 8


def stage_table(
    columns: Columns,
    rows: Sequence[dict[str, Any]],
    tokens: int = 0,
    twins: Mapping[str, str] = MappingProxyType({}),
) -> pa.Table:
    """The Arrow table of a chunk, with its counts in the file's metadata."""
    drops = drops_by_reason(rows)
    counts = ",".join(f"{reason}={number}" for reason, number in sorted(drops.items()))
    metadata = {META_ROWS: str(len(rows)).encode(), META_DROPS: counts.encode()}
    metadata |= {META_TOKENS: str(tokens).encode()} if tokens else {}
    metadata |= {_META_TWINS: json.dumps(twins, sort_keys=True).encode()} if twins else {}
    schema = stage_schema(columns).with_metadata(metadata)
    return pa.Table.from_pylist(list(rows), schema=schema)


def read_twins(table: pa.Table) -> dict[str, str]:
    """What a table notes of the duplicates of its samples; see :func:`stage_table`."""
    return json.loads((table.schema.metadata or {}).get(_META_TWINS, b"{}"))


def drops_by_reason(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return how many of the rows are drops, by reason."""
    return dict(Counter(row["drop"]["reason"] for row in rows if row.get("drop")))


def write_table(store: Store, name: str, table: pa.Table) -> None:
    """Publish a table under a name.

    Raises:
        RunError: the disk is full or cannot be written to.
    """
    with disk_errors(store.root), store.atomic(name) as path:
        write_sealed(table, path)


@contextlib.contextmanager
def disk_errors(where: str) -> Iterator[None]:
    """Translate a failed write into a RunError; a full disk is named."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RunError(
                f"{where}: the disk is full; free some space and run the same command again, "
                "it goes on where it stopped"
            ) from error
        raise RunError(f"{where}: cannot write ({error.strerror or error})") from error


def tables_ahead(store: Store, names: Iterable[str]) -> Iterator[pa.Table]:
    """Tables in order, read ahead by threads; raises what :func:`read_table` raises."""
    with ThreadPoolExecutor(_READERS) as pool:
        yield from map_ahead(pool, lambda name: read_table(store, name), names, most=4 * _READERS)


def read_table(store: Store, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """A table as it was written.

    Raises:
        DamagedTableError: it is not, or not there.
        RunError: it cannot be read, for a reason that may pass.
    """
    try:
        return read_sealed(store.read(name)).read(columns=columns)
    except (SealError, TooMuch, pa.ArrowException, FileNotFoundError) as error:
        raise DamagedTableError(store.root, name, first_line(error)) from error
    except OSError as error:
        raise _unread(store, name, error) from error


def _unread(store: Store, name: str, error: OSError) -> DamagedTableError | RunError:
    """Return the error for a table that could not be read: a damaged table, or a failed store."""
    if error.errno == errno.EIO and store.is_local:  # the disk itself cannot
        return DamagedTableError(store.root, name, first_line(error))
    return RunError(f"{store.root}/{name}: cannot be read ({first_line(error)})")


def sum_counts(store: Store, names: Iterable[str]) -> tuple[int, dict[str, int]]:
    """Rows and drops by reason of many tables together; footers only, read by threads.

    Raises:
        DamagedTableError: a file's footer is damaged, or none of ours.
        RunError: one cannot be read, for a reason that may pass.
    """
    total, drops = 0, Counter[str]()
    with ThreadPoolExecutor(_READERS) as pool:
        # a thread takes many at a time: handing one over costs as much as reading it
        batches = pool.map(lambda few: [_counts_of(store, n) for n in few], batched(names, 64))
        for rows, reasons in chain.from_iterable(batches):
            total += rows
            drops.update(reasons)
    return total, dict(drops)


def sum_tokens(store: Store, names: Iterable[str]) -> int:
    """Tokens that were used for many tables together; footers only. A table that is not there, or
    is damaged and therefore made anew, counts as none."""

    def tokens_of(name: str) -> int:
        with contextlib.suppress(OSError, KeyError, ValueError, pa.ArrowException):
            return int((pq.read_metadata(store.for_arrow(name)).metadata or {})[META_TOKENS])
        return 0

    with ThreadPoolExecutor(_READERS) as pool:
        return sum(pool.map(tokens_of, names))


def _counts_of(store: Store, name: str) -> tuple[int, dict[str, int]]:
    try:
        return read_counts(store.for_arrow(name))
    except OSError as error:
        if error.errno in (None, errno.ENOENT):  # Arrow says of damage that it is an OSError
            raise DamagedTableError(store.root, name, first_line(error)) from error
        raise _unread(store, name, error) from error
    except (KeyError, ValueError, pa.ArrowException) as error:
        reason = "no table of this glit" if isinstance(error, KeyError) else first_line(error)
        raise DamagedTableError(store.root, name, reason) from error


def read_counts(file: Any) -> tuple[int, dict[str, int]]:
    """Rows and drops by reason of a file, by its path or opened; from the footer alone."""
    metadata = pq.read_metadata(file).metadata or {}
    drops = {}
    for item in filter(None, metadata.get(META_DROPS, b"").decode().split(",")):
        reason, _, number = item.partition("=")
        drops[reason] = int(number)
    return int(metadata[META_ROWS]), drops
