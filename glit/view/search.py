"""Search and sort a dataset by SQL, one page of row numbers at a time."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import duckdb

from glit.dataset.query import NUMBER, check_select, numbered, open_connection, sql_fault
from glit.dataset.reader import Dataset
from glit.errors import UserError, first_line

SORTS = {
    "order": "n",
    "best": "best DESC NULLS LAST, n",
    "worst": "best NULLS LAST, n",
    "alone": "alone DESC, n",
    "long": "letters DESC, n",
}
"""Orders that samples may be sorted by; ``best`` is the cosine of a sample's best pair."""


ID_CHARACTERS = 16
MOST_IDS = 2000
"""Most sample ids of a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A search request: one field per control of the page."""

    text: str = ""
    """In the caption or the path, or the beginning of the id; lower case."""
    sort: str = "order"
    source: str = ""
    """Some pair's region is of this proposer."""
    label: str = ""
    """Some pair's region has this label."""
    at_least: float | None = None
    """The best pair's cosine."""
    at_most: float | None = None
    ids: str = ""
    """The first :data:`ID_CHARACTERS` of ids, with commas; empty takes all."""
    kind: str = ""
    """``all``: every sentence has a region; ``alone``: some sentence has none."""

    @property
    def is_everything(self) -> bool:
        return self == Asked()


class Search:
    """Search an index with a few numbers per row, built in the background.

    The first page of everything needs no index and comes at once.

    Args:
        dataset: a finished one.
        where: a condition in SQL on the columns of ``samples``; empty takes all.

    Raises:
        UserError: DuckDB does not accept the condition.
    """

    def __init__(self, dataset: Dataset, *, where: str = "") -> None:
        self._dataset = dataset
        self.where = where.strip()
        self.connection = open_connection(dataset)
        self._condition = f"WHERE (\n{self.where}\n)" if self.where else ""
        self._fault: duckdb.Error | None = None
        try:
            check_select(f"SELECT 1 FROM samples {self._condition}", self.connection)
            self.connection.execute(f"EXPLAIN SELECT 1 FROM samples {self._condition}")
        except duckdb.Error as error:
            raise UserError(f"--where: {sql_fault(error, dataset.schema.names)}") from error
        self._indexing = threading.Thread(target=self._index, daemon=True)
        self._indexing.start()

    def close(self) -> None:
        """Release the files; waits until the index is built or cancelled."""
        self.connection.interrupt()
        self._indexing.join()
        self.connection.close()

    def find(self, asked: Asked, *, first: int, most: int) -> tuple[int, list[int]]:
        """The number of matching rows, and the numbers of one page of them in order.

        Raises:
            UserError: no such order, or a condition that fails on some row.
        """
        if asked.sort not in SORTS:
            raise UserError(f"sort: found {asked.sort!r}, want one of {', '.join(SORTS)}")
        if asked.ids.count(",") >= MOST_IDS:
            raise UserError(f"{asked.ids.count(',') + 1} samples; a tag shows at most {MOST_IDS}")
        if asked.is_everything and not self.where:
            total = len(self._dataset)
            return total, list(range(min(first, total), min(first + most, total)))
        self._indexing.join()
        if self._fault is not None:
            raise UserError(f"--where: {first_line(self._fault)}") from self._fault
        conditions, values = _conditions(asked)
        of_rows = f"n IN (SELECT {NUMBER} FROM {numbered(self._dataset)} WHERE "
        if asked.text:
            conditions.append(
                f"{of_rows} contains(lower(caption), $text) OR contains(lower(source_path), $text)"
                " OR starts_with(sample_id, $text))"
            )
        if asked.ids:
            conditions.append(f"{of_rows} list_contains($ids, sample_id[:{ID_CHARACTERS}]))")
        all_of = " AND ".join(conditions) or "true"
        cursor = self.connection.cursor()
        rows = cursor.execute(
            f"""SELECT n, count(*) OVER () FROM row_index WHERE {all_of}
                ORDER BY {SORTS[asked.sort]} LIMIT {most} OFFSET {first}""",
            values,
        ).fetchall()
        if rows:
            return rows[0][1], [number for number, _ in rows]
        if not first:
            return 0, []
        counted = cursor.execute(f"SELECT count(*) FROM row_index WHERE {all_of}", values)
        return counted.fetchall()[0][0], []

    def _index(self) -> None:
        try:
            self.connection.cursor().execute(
                f"""CREATE TABLE row_index AS
                    SELECT {NUMBER}::BIGINT AS n, length(caption) AS letters,
                           list_max(list_transform(chosen, lambda p: p.similarity)) AS best,
                           len(sentences) - len(chosen) AS alone,
                           list_distinct(list_transform(chosen,
                               lambda p: regions[p.region + 1].source)) AS sources,
                           list_distinct(list_transform(chosen,
                               lambda p: regions[p.region + 1].label)) AS labels
                    FROM (SELECT *, list_filter(pairs, lambda p: NOT p.global_wins) AS chosen
                          FROM {numbered(self._dataset)} {self._condition})"""
            )
        except duckdb.Error as error:
            self._fault = error


def _conditions(asked: Asked) -> tuple[list[str], dict[str, object]]:
    """SQL on the index, and the values that are bound to it."""
    conditions: list[str] = []
    values: dict[str, object] = {}
    if asked.text:
        values["text"] = asked.text
    if asked.ids:
        values["ids"] = asked.ids.split(",")
    if asked.source:
        conditions.append("list_contains(sources, $source)")
        values["source"] = asked.source
    if asked.label:
        conditions.append("list_contains(labels, $label)")
        values["label"] = asked.label
    if asked.at_least is not None:
        conditions.append("best >= $at_least")
        values["at_least"] = asked.at_least
    if asked.at_most is not None:
        conditions.append("best <= $at_most")
        values["at_most"] = asked.at_most
    if asked.kind:
        conditions.append("alone > 0" if asked.kind == "alone" else "alone = 0")
    return conditions, values
