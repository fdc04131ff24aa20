"""Choose rows of a dataset by a condition in SQL, all of them or a random sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import duckdb
import pyarrow as pa

from glit.dataset.query import NUMBER, check_select, connect, numbered, sql_fault
from glit.dataset.reader import Dataset
from glit.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Row numbers that were selected, and how many rows meet the condition."""

    numbers: tuple[int, ...]
    """In ascending order."""
    matching: int
    """Rows that meet the condition, before sampling."""


def select(
    dataset: Dataset,
    connection: duckdb.DuckDBPyConnection,
    *,
    where: str,
    most: int | None = None,
    seed: int = 0,
) -> Selection:
    """Choose rows; equal seeds give equal rows.

    Args:
        dataset: whose rows.
        connection: of :func:`glit.dataset.query.connect`.
        where: a condition in SQL on the columns of ``samples``; empty takes all.
        most: how many at most, chosen at random; None takes all that match.
        seed: another one gives others.

    Raises:
        UserError: DuckDB does not accept the condition, or nothing fulfils it.
    """
    rows = numbered(dataset)
    condition = f"WHERE (\n{where}\n)" if where.strip() else ""
    some = "" if most is None else f"ORDER BY md5(sample_id || '{seed}'), sample_id LIMIT {most}"
    chosen = f"SELECT {NUMBER} FROM {rows} {condition} {some}"
    count = f"SELECT count(*) FROM {rows} {condition}"
    try:
        for sql in (chosen, count):
            check_select(sql)
        found = connection.execute(chosen).fetchall()
        matching = connection.execute(count).fetchall()[0][0]
    except duckdb.Error as error:
        raise UserError(f"--where: {sql_fault(error, dataset.schema.names)}") from error
    if not found:
        raise UserError(f"--where {where}: none of {len(dataset)} samples meets this condition")
    return Selection(numbers=tuple(sorted(number for (number,) in found)), matching=matching)


def narrowed(dataset: Dataset, where: str) -> Dataset:
    """The samples that meet a condition, as a dataset; the dataset itself without one.

    Raises:
        UserError: see :func:`select`.
        DatasetError: the rows hold values that a condition cannot work with.
    """
    if not where.strip():
        return dataset
    with connect(dataset) as connection:
        return _Narrowed(dataset, select(dataset, connection, where=where).numbers)


class _Narrowed(Dataset):
    """Some rows of a dataset, to iterate over: its row groups without the other rows.

    Args:
        whole: the dataset.
        numbers: of its rows, rising.
    """

    def __init__(self, whole: Dataset, numbers: Sequence[int]) -> None:
        super().__init__(whole.path, image_root=whole.image_root)
        kept: dict[int, list[int]] = {}
        for number in numbers:
            group, row = whole.locate(number)
            kept.setdefault(group, []).append(row)
        self._kept = list(kept.values())
        self.places = tuple(
            replace(whole.places[group], num_rows=len(rows)) for group, rows in kept.items()
        )
        self._ends = list(accumulate(place.num_rows for place in self.places))

    def table(
        self,
        columns: Sequence[str] | None = None,
        *,
        file: str | None = None,
        row_group: int | None = None,
    ) -> pa.Table:
        assert row_group is not None, "rows are chosen group by group"
        return super().table(columns, row_group=row_group).take(self._kept[row_group])
