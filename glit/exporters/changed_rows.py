"""A dataset whose rows are changed on the way to an export."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from glit.dataset.reader import Dataset
from glit.dataset.row import Row


class ChangedRows(Dataset, ABC):
    """The same dataset, perhaps narrowed to some rows, with :meth:`change` applied to each row that
    is read. Tables are those of the dataset, unless a subclass changes them too.

    Args:
        whole: the dataset.
    """

    def __init__(self, whole: Dataset) -> None:
        vars(self).update(vars(whole))
        self._whole = whole

    @abstractmethod
    def change(self, row: Row) -> Row:
        """Return the row as it is exported."""

    def rows(self, *, images: bool = True) -> Iterator[Row]:
        return map(self.change, self._whole.rows(images=images))

    def __getitem__(self, number: int) -> Row:
        return self.change(self._whole[number])

    def table(self, *args: Any, **options: Any) -> pa.Table:
        return self._whole.table(*args, **options)
