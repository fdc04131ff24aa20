"""A dataset whose rows are changed on the way to an export."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from glit.dataset.reader import Dataset
from glit.dataset.row import Row


class ChangedRows(Dataset):
    """The same dataset, perhaps narrowed to some rows, with a map over what is read of it.

    Args:
        whole: the dataset.
        row: returns a row as it is exported.
        table: returns a table so, whose columns are some of the dataset's. By default tables are
            those of the dataset.
    """

    def __init__(
        self,
        whole: Dataset,
        row: Callable[[Row], Row],
        table: Callable[[pa.Table], pa.Table] = lambda table: table,
    ) -> None:
        vars(self).update(vars(whole))
        self._whole, self._row, self._table = whole, row, table

    def rows(self, *, images: bool = True) -> Iterator[Row]:
        return map(self._row, self._whole.rows(images=images))

    def __getitem__(self, number: int) -> Row:
        return self._row(self._whole[number])

    def table(self, *args: Any, **options: Any) -> pa.Table:
        return self._table(self._whole.table(*args, **options))
