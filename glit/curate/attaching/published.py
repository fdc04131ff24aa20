"""The pictures of a dataset that was published without them: hashes, and thumbnails."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from glit.curate.attaching.picture import Picture, picture_of
from glit.data.bounded_parquet import BoundedParquet
from glit.data.schema import PICTURES
from glit.dataset.reader import Dataset
from glit.errors import DatasetError, first_line
from glit.images import ImageError, decode

_MOST_PIXELS = 1 << 20
"""Most pixels of a thumbnail."""
_KEY = 16
"""Length in hexadecimal digits of the part of a SHA-256 that is compared in memory: eight bytes."""
_FIRST_BYTES = f"""
    SELECT coalesce(try_cast('0x' || sha256[:{_KEY}] AS UBIGINT), 0) AS key
    FROM samples ORDER BY key
"""
STEM = "lower(parse_filename({path}, true, 'forward_slash'))"
"""A file's name without folder, ending and case."""
_SAMPLES = f"""
    INSERT INTO samples
    SELECT sample, sample_id, pixels_sha256, {STEM.format(path="source_path")}, width, height
    FROM rows JOIN prints USING (sample, sample_id)
"""


class PublishedPictures:
    """The hashes and thumbnails of a dataset's pictures; thumbnails are read when they are wanted.

    Args:
        dataset: the published dataset.
        path: a local copy of its ``pictures.parquet``.
        connection: to the work file, which gets the hashes.

    Raises:
        DatasetError: the file is damaged, or not this dataset's.
    """

    def __init__(self, dataset: Dataset, path: Path, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._name = f"{dataset.path}/{PICTURES}"
        try:
            self._file = BoundedParquet(path)
            groups = range(self._file.num_row_groups)
            self._ends = np.cumsum([self._file.metadata.row_group(n).num_rows for n in groups])
            if not connection.execute("SELECT count(*) FROM samples").fetchall()[0][0]:
                self._read_hashes(dataset)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DatasetError(f"{self._name}: {first_line(error)}") from error
        self._first_bytes = np.asarray(connection.execute(_FIRST_BYTES).fetchnumpy()["key"])
        self._group, self._thumbnails = -1, pa.array([], pa.binary())
        self.has_thumbnails = len(dataset) > 0 and self.thumbnail(0) is not None

    def _read_hashes(self, dataset: Dataset) -> None:
        """Put the hashes of all samples into the work file, whole or not at all."""
        connection, file = self._connection, self._file
        connection.begin()
        columns = ["sample_id", "source_path", "width", "height"]
        own = (dataset.table(columns, row_group=n) for n in range(len(dataset.places)))
        hashes = ["sample_id", "pixels_sha256"]
        named = (file.read_row_group(n, columns=hashes) for n in range(file.num_row_groups))
        counts = [self._read("rows", own), self._read("prints", named)]
        connection.execute(_SAMPLES)
        counts.append(connection.execute("SELECT count(*) FROM samples").fetchall()[0][0])
        if len({*counts}) > 1:
            raise ValueError("its samples are not those of the data files; export it again")
        connection.execute("DROP TABLE rows; DROP TABLE prints")
        connection.commit()

    def _read(self, name: str, tables: Iterable[pa.Table]) -> int:
        """Put rows into a new table, numbered; return how many."""
        number = 0
        for group, table in enumerate(tables):
            numbers = pa.array(range(number, number + len(table)), pa.int32())
            rows = self._connection.from_arrow(table.append_column("sample", numbers))
            (rows.insert_into if group else rows.create)(name)
            number += len(table)
        return number

    def may_hold(self, sha256: str) -> bool:
        """Return False for nearly all hashes of files that no sample has."""
        key = np.uint64(int(sha256[:_KEY], 16))
        place = np.searchsorted(self._first_bytes, key)
        return bool(self._first_bytes[place : place + 1] == key)

    def thumbnail(self, sample: int) -> bytes | None:
        """Return a sample's thumbnail, encoded; None if it was published without. Samples asked for
        in order read each row group once."""
        group = int(np.searchsorted(self._ends, sample, side="right"))
        if group != self._group:
            table = self._file.read_row_group(group, columns=["thumbnail"])
            self._group, self._thumbnails = group, table["thumbnail"].combine_chunks()
        start = int(self._ends[group]) - len(self._thumbnails)
        return self._thumbnails[sample - start].as_py()

    def picture(self, sample: int, thumbnail: bytes | None, size: tuple[int, int]) -> Picture:
        """Return the picture of a sample as it is compared.

        Args:
            sample: its number.
            thumbnail: its own.
            size: width and height of the picture.

        Raises:
            DatasetError: the thumbnail is damaged.
        """
        try:
            return picture_of(decode(thumbnail or b"", max_pixels=_MOST_PIXELS), size)
        except ImageError as error:
            raise DatasetError(
                f"{self._name}: the thumbnail of row {sample} is damaged ({error})"
            ) from error
