"""The reader of finished datasets: typed rows and Arrow tables, by row, file and column.

Nothing is copied to disk and no index is built: the Parquet footers say where everything is.
"""

from __future__ import annotations

import bisect
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from glit.data.bounded_parquet import BoundedParquet, TooMuch
from glit.data.schema import META_TOKENIZER
from glit.dataset.columns import RowGroup
from glit.dataset.footers import Footers
from glit.dataset.manifest import read_manifest
from glit.dataset.row import Row
from glit.dataset.row_checks import file_faults, row_faults
from glit.errors import DatasetError, InputError, first_line
from glit.inputs.files import ImageFiles
from glit.storage.store import Store, inside

_RECENT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The location of a row group."""

    path: str
    """File, relative to the dataset."""
    index: int
    """Number inside the file."""
    num_rows: int


class Dataset:
    """A finished dataset: ``len``, rows by number, iteration, tables. Safe to use from threads.

    Args:
        path: folder or address.
        image_root: the ingested folder, for a dataset that stores images by path.
        check_pages: look at the headers of all pages too, as a reader that is not
            :class:`BoundedParquet` needs it.

    Raises:
        UserError: there is no dataset, it is not finished, or it has no samples.
        DatasetError: a file of the manifest is missing or cannot be read.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, image_root: str = "", check_pages: bool = False
    ) -> None:
        self.path = os.fspath(path)
        self.image_root = image_root
        self._store = Store(self.path)
        self._images = ImageFiles(image_root or ".")
        self.manifest = read_manifest(self._store)
        """The dataset's manifest; docs/data-format.md lists its keys."""
        self.files: tuple[str, ...] = tuple(self._data_files())
        """Data files, relative to the dataset, in order."""
        self.has_checked_pages = check_pages and self.is_local
        """True if no row group decodes to more than memory is to hold."""
        self._footers = Footers(self._read_footer)
        self.places: tuple[Place, ...] = tuple(
            Place(path=name, index=index, num_rows=footer.row_group(index).num_rows)
            for name in self.files
            for footer in [self._checked_footer(name)]
            for index in range(footer.num_row_groups)
        )
        """Every row group, in the order of the rows."""
        self._ends = list(accumulate(place.num_rows for place in self.places))
        if not self._ends or not self._ends[-1]:
            raise InputError(f"{self.path}: the dataset has no samples; build it from more images")
        self._recent = RowGroupCache(self, capacity=_RECENT)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (self.path, self.image_root))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, number: int) -> Row:
        """A row by its number, with its image; negative numbers count from the end.

        Raises:
            IndexError: there is no such row.
        """
        if not -len(self) <= number < len(self):
            raise IndexError(f"row {number} of a dataset of {len(self)}")
        group, row = self.locate(number % len(self))
        return self._recent.get(group)[row]

    def locate(self, number: int) -> tuple[int, int]:
        """The row group of a row, and the row's index in it."""
        group = bisect.bisect_right(self._ends, number)
        return group, number - (self._ends[group] - self.places[group].num_rows)

    def __iter__(self) -> Iterator[Row]:
        return self.rows()

    def rows(self, *, images: bool = True) -> Iterator[Row]:
        """Iterate over all rows in order; one row group is in memory at a time."""
        for number in range(len(self.places)):
            yield from self.row_group(number, images=images)

    def row_group(
        self, number: int, *, images: bool = True, columns: Sequence[str] | None = None
    ) -> RowGroup:
        """A row group by its number in ``places``.

        Args:
            number: of the row group.
            images: read the encoded images too.
            columns: only these; records of whole rows want all.

        Raises:
            DatasetError: the file was deleted, changed or cut short since it was opened.
        """
        names = self.schema.names if columns is None else columns
        wanted = [name for name in names if images or name != "image"]
        place = self.places[number]
        return RowGroup(
            self.table(wanted, row_group=number),
            self.stored_image,
            name=f"{place.path}, row group {place.index}",
        )

    def table(
        self,
        columns: Sequence[str] | None = None,
        *,
        file: str | None = None,
        row_group: int | None = None,
    ) -> pa.Table:
        """Columns as an Arrow table: of the whole dataset, of a file, or of a row group.

        Args:
            columns: names; None takes all, encoded images included.
            file: one of ``files``.
            row_group: a number in ``places``.

        Raises:
            DatasetError: see :meth:`row_group`.
        """
        wanted = None if columns is None else list(columns)
        if row_group is not None:
            place = self.places[row_group]
            return self._read(place.path, wanted, place.index)
        if file is not None:
            return self._read(file, wanted, None)
        return pa.concat_tables([self._read(name, wanted, None) for name in self.files])

    def drops(self) -> pa.Table:
        """The drops: every left-out image with its stage and reason."""
        return self._read("drops.parquet", None, None)

    def duplicates(self) -> pa.Table:
        """Every image that repeats another, and which."""
        return self._read("duplicates.parquet", None, None)

    def first_rows(self) -> dict[str, int]:
        """The number of every data file's first row."""
        sizes = dict.fromkeys(self.files, 0)
        for place in self.places:
            sizes[place.path] += place.num_rows
        return dict(zip(self.files, accumulate(sizes.values(), initial=0), strict=False))

    def image_bytes(self, row_group: int) -> int:
        """The average size of an image in a row group, by the file's footer."""
        place = self.places[row_group]
        group = self._footers.get(place.path).row_group(place.index)
        columns = map(group.column, range(group.num_columns))
        stored = [c.total_uncompressed_size for c in columns if c.path_in_schema == "image.bytes"]
        return sum(stored) // max(place.num_rows, 1)

    def full(self, name: str) -> str:
        """Path or address of a file of the dataset."""
        return self._store.full(name)

    def check_file(self, name: str) -> None:
        """Check that a file of the dataset exists and is a regular file.

        Raises:
            DatasetError: it is missing, or a pipe, a device or a folder.
        """
        if self._store.is_local and not os.path.isfile(self._store.full(name)):
            raise DatasetError(f"{self.path}/{name}: missing, or no regular file")

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of every file, as the manifest has them."""
        return {name: found.bytes for name, found in self.manifest.files.items()}

    def read_range(self, name: str, start: int, end: int) -> bytes:
        """Bytes of a file of the dataset, from ``start`` up to ``end``."""
        return self._store.read_range(name, start, end)

    @property
    def is_local(self) -> bool:
        """True if the dataset is in a folder of this machine."""
        return self._store.is_local

    @property
    def schema(self) -> pa.Schema:
        """Columns and metadata of the data files."""
        return self._footers.get(self.files[0]).schema.to_arrow_schema()

    @property
    def tokenizer(self) -> dict[str, Any]:
        """``name``, ``sha256`` and ``context`` of the tokenizer that gave the token spans."""
        return json.loads((self.schema.metadata or {}).get(META_TOKENIZER, b"{}"))

    def stored_image(self, source_path: str) -> bytes:
        """Read the file of an image that is stored by path.

        Raises:
            DatasetError: it cannot be read below ``image_root``.
        """
        try:
            return self._images.read(inside(source_path))
        except OSError as error:
            raise DatasetError(
                f"{self.path}: image {source_path} is stored by path and cannot be read below "
                f"{self.image_root or 'the current folder'!r}; set image_root (train.image_root, "
                "evaluate.image_root) to the folder the dataset was built from"
            ) from error

    def _data_files(self) -> list[str]:
        named = self.manifest.data_files
        missing = sorted(named.keys() - {f"data/{name}" for name in self._store.names("data")})
        if missing:
            raise DatasetError(
                f"{self.path}: {missing[0]} is in the manifest but not on disk "
                f"({len(missing)} missing in all); run 'glit verify' and repair the dataset"
            )
        return [*named]

    def _read_footer(self, name: str) -> pq.FileMetaData:
        with self._open(name) as file:
            if self.has_checked_pages and name not in self._footers:
                file.check()
            return file.metadata

    def _checked_footer(self, name: str) -> pq.FileMetaData:
        try:
            footer = self._footers.get(name)
        except TooMuch as error:
            raise DatasetError(f"{self.path}/{name}: {error}") from error
        except (OSError, ValueError, pa.ArrowException) as error:
            raise DatasetError(
                f"{self.path}/{name}: not a readable Parquet file ({first_line(error)}); "
                "run 'glit verify' and repair the dataset"
            ) from error
        for fault in file_faults(footer, name, self.manifest):
            raise DatasetError(
                f"{self.path}/{name}: {fault}; run 'glit verify' and repair the dataset"
            )
        return footer

    def _read(self, name: str, columns: list[str] | None, group: int | None) -> pa.Table:
        where = "" if group is None else f" row group {group}"
        try:
            footer = self._footers.get(name) if name in self._footers else None
            with self._open(name, footer) as file:
                if group is None:
                    table = file.read(columns=columns)
                else:
                    table = file.read_row_group(group, columns=columns)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise DatasetError(
                f"{self.path}/{name}:{where} cannot be read ({first_line(error)}); the file was "
                "changed, cut short or removed: run 'glit verify', repair the dataset, then go on"
            ) from error
        if footer is not None:
            for row, fault in row_faults(table):
                raise DatasetError(
                    f"{self.path}/{name}:{where} row {row}: {fault}; run 'glit verify', repair the "
                    "dataset, then go on"
                )
        return table

    def _open(self, name: str, footer: pq.FileMetaData | None = None) -> BoundedParquet:
        local = self._store.is_local
        file = self._store.for_arrow(name)
        if local and not os.path.isfile(file):
            raise OSError(f"{name} is no regular file")
        return BoundedParquet(file, metadata=footer, pre_buffer=not local)


class HasRowGroups(Protocol):
    """The interface of one dataset, or of several as one."""

    def row_group(self, number: int, *, columns: Sequence[str] | None = None) -> RowGroup:
        """A row group by its number."""
        ...


class RowGroupCache:
    """A least-recently-used cache of row groups by number."""

    def __init__(
        self, dataset: HasRowGroups, *, capacity: int, columns: Sequence[str] | None = None
    ) -> None:
        self._dataset = dataset
        self._capacity = capacity
        self._columns = columns
        self._lock = threading.Lock()
        self._groups: OrderedDict[int, Future[RowGroup]] = OrderedDict()

    def get(self, number: int) -> RowGroup:
        """A row group with its images; the first caller reads it and the others wait."""
        with self._lock:
            future = self._groups.get(number)
            mine = future is None
            if future is None:
                future = self._groups[number] = Future()
                if len(self._groups) > self._capacity:
                    self._groups.popitem(last=False)
            else:
                self._groups.move_to_end(number)
        if mine:
            try:
                future.set_result(self._dataset.row_group(number, columns=self._columns))
            except BaseException as error:
                with self._lock:  # who asks later tries again
                    self._groups.pop(number, None)
                future.set_exception(error)
                raise
        return future.result()


def _reopen(path: str, image_root: str) -> Dataset:
    return Dataset(path, image_root=image_root)
