"""Parquet of somebody else, decoded only if memory holds what it decodes to.

A footer's sizes say nothing of that: a dictionary page of one long value, or values that repeat the
one before them, make gigabytes of kilobytes. The headers of the pages bound it
(https://parquet.apache.org/docs/file-format/data-pages/), so they are looked at first.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from glit.data.limits import BATCH_BYTES, IMAGES_BYTES, TABLE_BYTES
from glit.data.page_headers import HEADER_BYTES, Page, pages
from glit.data.usual_pages import usual_totals

_DICTIONARY = (2, 8)
_DELTA_BYTE_ARRAY = 7
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_AT_ONCE = 1 << 20
"""Bytes of a row group that are read at once to look at the headers in them; of a larger one, the
headers alone."""
_PER_VALUE = 8
"""Bytes of a value's offset and levels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    """Bounds of what a column of a row group decodes to."""

    total: int
    """Bytes."""
    longest: int
    """Bytes of its longest value."""
    nested: bool
    """True if a row has several values."""


class BoundedParquet(pq.ParquetFile):
    """A Parquet file whose row groups are looked at before they are decoded.

    Args:
        source: path or opened file.
        most: bytes of all columns of a row group but the images.
    """

    images = "image"
    """The column of images, which may take more than the others."""

    def __init__(self, source: Any, *, most: int = TABLE_BYTES, **options: Any) -> None:
        self._bytes = _Held(source) if hasattr(source, "read") else None
        self._path = "" if self._bytes else os.fspath(source)
        self._most = most
        super().__init__(self._bytes or source, **options)

    def read_row_group(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, i: int, columns: Any = None, **options: Any
    ) -> pa.Table:
        """Read a row group as pyarrow does.

        Raises:
            ValueError: it decodes to more than memory is to hold.
        """
        sizes = self._sizes(i, columns)
        try:
            if self._fits(sizes):
                return super().read_row_group(i, columns=columns, **options)
            parts, images, others = [], 0, 0
            for batch in self._batches(i, columns, sizes, 1 << 16):
                own = sum(
                    c.nbytes
                    for n, c in zip(batch.schema.names, batch.columns, strict=True)
                    if n == self.images
                )
                images, others = images + own, others + batch.nbytes - own
                if images > IMAGES_BYTES or others > self._most:
                    raise self._too_much(i, images + others)
                parts.append(batch)
            return pa.Table.from_batches(parts)
        finally:
            self._let_go()

    def read(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, columns: Any = None, **options: Any
    ) -> pa.Table:
        """Read the file as pyarrow does; raises ValueError as :meth:`read_row_group`."""
        held = 0
        for i in range(self.metadata.num_row_groups):
            sizes = self._sizes(i, columns)
            held += sum(size.total for size in sizes.values())
            if not self._fits(sizes) or held > max(IMAGES_BYTES, 32 * self._num_bytes()):
                raise self._too_much(i, held)
        try:
            return super().read(columns=columns, **options)
        finally:
            self._let_go()

    def iter_batches(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        batch_size: int = 65536,
        row_groups: Sequence[int] | None = None,
        columns: Any = None,
        **options: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches as pyarrow does, with fewer rows a batch where values are long; no batch is
        of two row groups. Raises ValueError as :meth:`read_row_group`."""
        chosen = range(self.metadata.num_row_groups) if row_groups is None else row_groups
        for i in chosen:
            yield from self._batches(i, columns, self._sizes(i, columns), batch_size, **options)
            self._let_go()

    def check(self) -> None:
        """Look at every row group; raises ValueError as :meth:`read_row_group`."""
        columns = [self.schema.column(number) for number in range(self.metadata.num_columns)]
        with contextlib.nullcontext(self._bytes) if self._bytes else open(self._path, "rb") as file:
            totals = usual_totals(file, self.metadata, [_width(each) for each in columns])
        enough = min(IMAGES_BYTES, self._most)
        for i in np.flatnonzero(~(totals.sum(axis=1) <= enough)).tolist():  # NaN is too much
            found = {c.path: total for c, total in zip(columns, totals[i].tolist(), strict=True)}
            unusual = [name for name, total in found.items() if math.isnan(total)]
            sizes = self._sizes(i, unusual) | {
                name: _Size(total=int(total), longest=0, nested=False)
                for name, total in found.items()
                if name not in unusual
            }
            if not self._fits(sizes):
                raise self._too_much(i, sum(size.total for size in sizes.values()))

    def _batches(
        self, i: int, columns: Any, sizes: dict[str, _Size], most_rows: int, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        nested = {name: size for name, size in sizes.items() if size.nested}
        if not self._fits(nested):
            raise self._too_much(i, sum(size.total for size in nested.values()))
        longest = sum(size.longest for size in sizes.values() if not size.nested)
        if longest > max(IMAGES_BYTES, self._most):
            raise self._too_much(i, longest)
        rows = max(1, min(most_rows, BATCH_BYTES // max(1, longest)))
        if sum(size.total for size in sizes.values()) <= BATCH_BYTES:
            rows = most_rows
        yield from super().iter_batches(rows, row_groups=[i], columns=columns, **options)

    def _fits(self, sizes: dict[str, _Size]) -> bool:
        images = sum(s.total for name, s in sizes.items() if name.split(".")[0] == self.images)
        others = sum(size.total for size in sizes.values()) - images
        return images <= IMAGES_BYTES and others <= self._most

    def _sizes(self, i: int, columns: Any) -> dict[str, _Size]:
        group, schema = self.metadata.row_group(i), self.schema
        chosen = []
        for number in range(group.num_columns):
            chunk = group.column(number)
            name = chunk.path_in_schema
            if columns is None or any(name == c or name.startswith(f"{c}.") for c in columns):
                chosen.append((name, chunk, schema.column(number), *_range(chunk)))
        if self._bytes:
            for *_, start, end in chosen:
                self._bytes.hold(start, end)
            return _sizes(chosen, self._bytes)
        with open(self._path, "rb") as file:
            held = _Held(file)
            first = min((start for *_, start, _ in chosen), default=0)
            last = max((end for *_, end in chosen), default=0)
            if last - first <= _AT_ONCE:
                held.hold(first, last + HEADER_BYTES[0])
            return _sizes(chosen, held)

    def _too_much(self, group: int, size: int) -> TooMuch:
        return TooMuch(
            f"row group {group} decodes to {size >> 20} MB, at most {self._most >> 20} MB, of "
            f"images {IMAGES_BYTES >> 20} MB, are held at once; write fewer rows a row group"
        )

    def _num_bytes(self) -> int:
        return self._bytes.size() if self._bytes else os.path.getsize(self._path)

    def _let_go(self) -> None:
        if self._bytes:
            self._bytes.held.clear()


class TooMuch(ValueError):
    """A row group decodes to more than memory is to hold."""


def _range(chunk: Any) -> tuple[int, int]:
    """Return the place of a row group's column in the file."""
    start, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
    if dictionary is not None and 0 < dictionary < start:
        start = dictionary
    return start, start + chunk.total_compressed_size


def _sizes(chosen: Iterable[tuple[str, Any, Any, int, int]], file: _Held) -> dict[str, _Size]:
    """Bounds of columns: their names, what the footer says of them, and where they are."""
    return {
        name: _bound(list(pages(file, start, end, chunk.num_values)), chunk, column, file)
        for name, chunk, column, start, end in chosen
    }


def _width(column: Any) -> int:
    """Bytes of each value of a column; 0 where they differ."""
    fixed = column.physical_type == "FIXED_LEN_BYTE_ARRAY"
    return column.length if fixed else _WIDTHS.get(column.physical_type, 0)


def _bound(found: list[Page], chunk: Any, column: Any, file: Any) -> _Size:
    """Bounds of a column, by its pages."""
    width = _width(column)
    values, total, longest = 0, 0, width
    dictionary = next((page for page in found if page.is_dictionary), None)
    looked_up = 0
    for page in found:
        values += 0 if page.is_dictionary else page.num_values
        total += page.num_bytes
        if width or page.is_dictionary:
            continue
        if page.encoding in _DICTIONARY:
            looked_up += page.num_values
        elif page.encoding == _DELTA_BYTE_ARRAY:
            total += page.num_values * page.num_bytes
            longest = max(longest, page.num_bytes)
        else:
            longest = max(longest, page.num_bytes)
    total += values * (_PER_VALUE + width)
    if looked_up and dictionary:
        value = dictionary.num_bytes
        if dictionary.num_bytes <= IMAGES_BYTES and looked_up * value > BATCH_BYTES:
            value = dictionary.longest_value(file, chunk.compression)
        total, longest = total + looked_up * value, max(longest, value)
    return _Size(total=total, longest=longest, nested=column.max_repetition_level > 0)


class _Held:
    """An opened file that keeps the ranges which were looked at until they have been read."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._file, self._at = file, 0
        self.held: list[tuple[int, bytes]] = []

    def hold(self, start: int, end: int) -> None:
        """Fetch a range at once: a look at every page's header alone would be a request each."""
        self._file.seek(start)
        self.held.append((start, self._file.read(max(0, end - start))))

    def size(self) -> int:
        at = self._at
        end = self.seek(0, 2)
        self._at = at
        return end

    def seek(self, to: int, whence: int = 0) -> int:
        if whence == 2:
            self._at = self._file.seek(to, 2)
        else:
            self._at = to + (self._at if whence == 1 else 0)
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, number: int = -1) -> bytes:
        at = self._at
        for start, data in self.held:
            if number >= 0 and start <= at and at + number <= start + len(data):
                found = data[at - start : at - start + number]
                break
        else:
            self._file.seek(at)
            found = self._file.read(number)
        self._at = at + len(found)
        return bytes(found)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True
        self._file.close()
