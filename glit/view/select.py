"""Choose the rows of a page: a random sample of those that meet a condition."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from glit.dataset.query import NUMBER, check_select, numbered
from glit.dataset.reader import Dataset
from glit.errors import UserError, first_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Chosen rows, and the number of rows they were chosen from."""

    numbers: tuple[int, ...]
    """Rising."""
    matching: int
    """How many rows the condition lets through."""


def select(
    dataset: Dataset,
    connection: duckdb.DuckDBPyConnection,
    *,
    most: int,
    seed: int,
    where: str,
) -> Selection:
    """Choose random rows; equal seeds give equal rows.

    Args:
        dataset: whose rows.
        connection: of :func:`glit.dataset.query.connect`.
        most: how many at most.
        seed: another one gives others.
        where: a condition in SQL on the columns of ``samples``; empty takes all.

    Raises:
        UserError: DuckDB does not accept the condition, or nothing fulfils it.
    """
    rows = numbered(dataset)
    condition = f"WHERE (\n{where}\n)" if where.strip() else ""
    chosen = f"""SELECT {NUMBER} FROM {rows} {condition}
                 ORDER BY md5(sample_id || '{seed}'), sample_id LIMIT {most}"""
    count = f"SELECT count(*) FROM {rows} {condition}"
    try:
        for sql in (chosen, count):
            check_select(sql)
        found = connection.execute(chosen).fetchall()
        matching = connection.execute(count).fetchall()[0][0]
    except duckdb.Error as error:
        raise UserError(f"--where: {first_line(error)}") from error
    if not found:
        raise UserError(f"--where {where}: none of {len(dataset)} samples meets this condition")
    return Selection(numbers=tuple(sorted(number for (number,) in found)), matching=matching)
