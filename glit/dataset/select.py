"""Choose rows of a dataset by a condition in SQL, all of them or a random sample."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import duckdb
import numpy as np
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
    by: str = "",
    seed: int = 0,
) -> Selection:
    """Choose rows; equal seeds give equal rows.

    Args:
        dataset: whose rows.
        connection: of :func:`glit.dataset.query.connect`.
        where: a condition in SQL on the columns of ``samples``; empty takes all.
        most: how many at most, chosen at random; None takes all that match.
        by: an expression in SQL; of each of its values equally many are chosen, as far as there
            are, and what is left over is shared out.
        seed: another one gives others.

    Raises:
        UserError: DuckDB does not accept the condition, or nothing fulfils it.
    """
    rows = numbered(dataset)
    order = f"md5(sample_id || '{seed}'), sample_id"
    condition = f"WHERE (\n{where}\n)" if where.strip() else ""
    if by:
        _check_expression("--by", by, dataset, connection)
        order = f"row_number() OVER (PARTITION BY (\n{by}\n) ORDER BY {order}), {order}"
    some = "" if most is None else f"ORDER BY {order} LIMIT {most}"
    chosen = f"SELECT {NUMBER} FROM {rows} {condition} {some}"
    count = f"SELECT count(*) FROM {rows} {condition}"
    with _faults_of("--by" if by and not condition else "--where", dataset):
        for sql in (chosen, count) if condition or by else ():
            check_select(sql, connection)
        found = connection.execute(chosen).fetchall()
        matching = connection.execute(count).fetchall()[0][0]
    if not found:
        raise UserError(f"--where {where}: none of {len(dataset)} samples meets this condition")
    return Selection(numbers=tuple(sorted(number for (number,) in found)), matching=matching)


def split_rows(
    dataset: Dataset,
    connection: duckdb.DuckDBPyConnection,
    numbers: Sequence[int],
    shares: Mapping[str, float],
    *,
    together: str = "sample_id",
    groups: Sequence[str] | None = None,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Divide rows into parts, by a hash; the numbers of each part's rows, ascending.

    Args:
        dataset: whose rows.
        connection: of :func:`glit.dataset.query.connect`.
        numbers: of the rows.
        shares: of every part; they sum to one.
        together: an expression in SQL; rows with the same value go to the same part.
        groups: of every row the name of its group, which goes to one part, instead of an
            expression.
        seed: another one gives others.

    Raises:
        UserError: DuckDB does not accept the expression, or a part would be empty.
    """
    if groups is None:
        _check_expression("--together", together, dataset, connection)
    columns = {NUMBER: np.asarray(numbers, np.int64)}
    if groups is not None:
        together, columns["chosen_group"] = "chosen_group", np.asarray(groups)
    connection.register("chosen", pa.table(columns))
    # rank() is the place of a value's first row, so all rows of the value have the same
    places = f"""
        SELECT {NUMBER} AS number, rank() OVER (ORDER BY md5(key || '{seed}'), key) - 1 AS place
        FROM (SELECT {NUMBER}, coalesce(CAST((\n{together}\n) AS VARCHAR), '') AS key
              FROM {numbered(dataset)} JOIN chosen USING ({NUMBER}))
        ORDER BY {NUMBER}"""
    with _faults_of("--together", dataset):
        found: dict[str, Any] = connection.execute(places).fetchnumpy()
    ends = np.rint(np.cumsum([*shares.values()]) * len(numbers))[:-1]
    part = np.searchsorted(ends, found["place"], side="right")
    parts = {name: found["number"][part == index] for index, name in enumerate(shares)}
    for name, own in parts.items():
        if not len(own):
            raise UserError(
                f"--split {name}={shares[name]:g}: no sample of {len(numbers)} is left for "
                f"{name!r}; give it a larger share"
            )
    return parts


def _check_expression(
    option: str, sql: str, dataset: Dataset, connection: duckdb.DuckDBPyConnection
) -> None:
    """Check an expression on the columns of ``samples``.

    Raises:
        UserError: DuckDB does not accept it.
    """
    statement = f"SELECT sample_id, (\n{sql}\n) FROM samples LIMIT 0"
    with _faults_of(option, dataset):
        check_select(statement, connection)
        connection.execute(statement)


@contextlib.contextmanager
def _faults_of(option: str, dataset: Dataset) -> Iterator[None]:
    """Translate what DuckDB says of an option's SQL."""
    try:
        yield
    except duckdb.Error as error:
        raise UserError(f"{option}: {sql_fault(error, dataset.schema.names)}") from error


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
        self._whole, self._numbers = whole, numbers
        self.places = tuple(
            replace(whole.places[group], num_rows=len(rows)) for group, rows in kept.items()
        )
        self._ends = list(accumulate(place.num_rows for place in self.places))

    def __reduce__(self) -> tuple[Any, ...]:
        return (_Narrowed, (self._whole, self._numbers))

    def table(
        self,
        columns: Sequence[str] | None = None,
        *,
        file: str | None = None,
        row_group: int | None = None,
    ) -> pa.Table:
        assert row_group is not None, "rows are chosen group by group"
        return super().table(columns, row_group=row_group).take(self._kept[row_group])
