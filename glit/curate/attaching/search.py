"""Search of all samples' pictures among a user's files: by bytes, by pixels, by looks.

Each step leaves its rows in the work file, some files at a time, and goes on after the last.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from glit.curate.attaching.align import Aligned, align
from glit.curate.attaching.annotations import pixels_sha256
from glit.curate.attaching.choice import count_same
from glit.curate.attaching.lookup import Index
from glit.curate.attaching.picture import Picture, picture_of
from glit.curate.attaching.published import STEM, PublishedPictures
from glit.curate.attaching.user_pictures import UserPictures
from glit.errors import RunError, StorageError, first_line
from glit.images import ImageError, decode
from glit.runtime.cores import usable_cores
from glit.runtime.prefetch import map_ahead
from glit.runtime.progress import StageProgress

In = TypeVar("In")
Out = TypeVar("Out")
_AT_ONCE = 256
"""Files, or samples, of a transaction."""
_SNAP = 0.01
"""Share of the longer side within which a placement is that of the whole picture."""
_NAMESAKES = 4
"""Samples of one file name, at most, among which the name proposes."""
_HASHED = pa.schema(
    [
        ("file", pa.int32()), ("sha256", pa.string()), ("pixels_sha256", pa.string()),
        ("fault", pa.string()),
    ]
)  # fmt: skip
_NOBODYS = """
    CREATE OR REPLACE TEMP TABLE nobodys AS
    SELECT file FROM listed JOIN hashed USING (file)
    ANTI JOIN samples USING (sha256) ANTI JOIN samples AS other USING (pixels_sha256)
    WHERE fault IS NULL
"""
_FILES = "SELECT file, source, path FROM files WHERE file IN (SELECT unnest(?)) ORDER BY file"
_NAMED = f"""
    SELECT file, sample FROM files JOIN samples ON stem = {STEM.format(path="path")}
    WHERE file IN (SELECT unnest(?))
    QUALIFY count(*) OVER (PARTITION BY file) <= {_NAMESAKES}
"""
_SIZES = """
    SELECT sample, width, height FROM samples WHERE sample IN (SELECT unnest(?)) ORDER BY sample
"""


class PictureSearch:
    """Finds the pictures of all samples.

    Args:
        published: hashes and thumbnails of the dataset.
        pictures: the user's pictures, listed.
        connection: to the work file.
        progress: counts files and thumbnails.
    """

    def __init__(
        self, published: PublishedPictures, pictures: UserPictures,
        connection: duckdb.DuckDBPyConnection, progress: StageProgress,
    ) -> None:  # fmt: skip
        self._published, self._pictures = published, pictures
        self._connection, self._progress = connection, progress

    def run(self) -> None:
        """Hash all files; if samples are left, compare the files that are nobody's with all
        samples: a part that two samples share may be of one that was found.

        Raises:
            DatasetError: a thumbnail is damaged.
            RunError: a file was changed since it was hashed.
        """
        with ThreadPoolExecutor(usable_cores()) as pool:
            self._pool = pool
            self._hash_files()
            samples = self._count("samples")
            if self._published.has_thumbnails and count_same(self._connection) < samples:
                index = Index(self._connection, samples)
                self._index_samples(index, samples)
                self._compare_files(index)

    def count_unreadable(self) -> int:
        """Return the number of files that no decoder reads."""
        return self._count("listed JOIN hashed USING (file) WHERE fault IS NOT NULL")

    def _hash_files(self) -> None:
        for files in self._parts("listed", "hashed", "look at pictures"):
            rows = pa.Table.from_pylist(list(self._mapped(self._hashed, files)), schema=_HASHED)
            self._connection.from_arrow(rows).insert_into("hashed")

    def _hashed(self, listed: tuple[int, int, str]) -> dict[str, Any]:
        file, source, path = listed
        row: dict[str, Any] = {"file": file}
        try:
            data = self._pictures.read(source, path)
            row["sha256"] = hashlib.sha256(data).hexdigest()
            if not self._published.may_hold(row["sha256"]):
                row["pixels_sha256"] = pixels_sha256(decode(data))
        except (OSError, ImageError, StorageError) as error:
            row["fault"] = first_line(error)
        return row

    def _index_samples(self, index: Index, number: int) -> None:
        """Put what thumbnails are looked up by into the work file."""
        done = self._count("indexed")
        self._progress.begin("look at thumbnails", total=number, done=done, drops=False)
        for first in range(done, number, _AT_ONCE):
            samples = range(first, min(number, first + _AT_ONCE))
            pictures = self._mapped(
                lambda each: self._published.picture(*each), self._sized(samples)
            )
            self._connection.begin()
            index.add(samples, list(pictures))
            self._connection.commit()
            self._progress.advance(len(samples))

    def _compare_files(self, index: Index) -> None:
        self._connection.execute(_NOBODYS)
        for files in self._parts("nobodys", "compared", "compare pictures"):
            numbers = [file for file, _, _ in files]
            pictures = dict(zip(numbers, self._mapped(self._opened, files), strict=True))
            pairs = index.propose(numbers, [*pictures.values()])
            pairs += self._connection.execute(_NAMED, [numbers]).fetchall()
            found = self._mapped(
                partial(self._compared, _by_sample(pairs), pictures),
                self._sized({s for _, s in pairs}),
            )
            rows = [row for each in found for row in each]
            self._connection.begin()
            if rows:
                self._connection.from_arrow(pa.Table.from_pylist(rows)).insert_into("alike")
            self._connection.from_arrow(pa.table({"file": numbers})).insert_into("compared")
            self._connection.commit()

    def _opened(self, listed: tuple[int, int, str]) -> Picture:
        _, source, path = listed
        try:
            return picture_of(decode(self._pictures.read(source, path)))
        except (OSError, ImageError) as error:
            raise RunError(f"{path}: changed since it was looked at") from error

    def _compared(
        self, proposed: dict[int, list[int]], pictures: dict[int, Picture],
        sized: tuple[int, bytes | None, tuple[int, int]],
    ) -> list[dict[str, Any]]:  # fmt: skip
        """Compare a sample with the files that may be its picture; return the rows of those that
        are."""
        sample, rows = sized[0], []
        published = self._published.picture(*sized)
        for file in proposed[sample]:
            if (aligned := align(published, pictures[file])) is not None:
                own = _as_row(published, pictures[file], aligned)
                rows.append({"sample": sample, "file": file, **own})
        return rows

    def _sized(self, samples: Iterable[int]) -> Iterator[tuple[int, bytes | None, tuple[int, int]]]:
        """Yield numbers, thumbnails and sizes of samples, in order."""
        for sample, width, height in self._connection.execute(_SIZES, [[*samples]]).fetchall():
            yield sample, self._published.thumbnail(sample), (width, height)

    def _parts(self, table: str, done: str, name: str) -> Iterator[list[tuple[int, int, str]]]:
        """Yield number, folder and path of the files of a table that another one does not hold
        yet, some at a time."""
        left = self._connection.execute(
            f"SELECT file FROM {table} ANTI JOIN {done} USING (file) ORDER BY file"
        ).fetchnumpy()["file"]
        total = self._count(table)
        self._progress.begin(name, total=total, done=total - len(left), drops=False)
        for first in range(0, len(left), _AT_ONCE):
            some = left[first : first + _AT_ONCE].tolist()
            yield self._connection.execute(_FILES, [some]).fetchall()
            self._progress.advance(len(some))

    def _count(self, table: str) -> int:
        return self._connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]

    def _mapped(self, work: Callable[[In], Out], items: Iterable[In]) -> Iterator[Out]:
        return map_ahead(self._pool, work, items, most=2 * usable_cores())


def _by_sample(pairs: list[tuple[int, int]]) -> dict[int, list[int]]:
    """Return the files of each sample, of pairs of a file and a sample."""
    files = defaultdict(set)
    for file, sample in pairs:
        files[sample].add(file)
    return {sample: sorted(each) for sample, each in files.items()}


def _as_row(published: Picture, found: Picture, aligned: Aligned) -> dict[str, Any]:
    size = published.size
    undone = aligned.placement.undone_size(*found.size)
    placement = aligned.placement.snapped(size, undone, _SNAP * max(size))
    return {
        "width": found.size[0], "height": found.size[1], **dataclasses.asdict(placement),
        "shown": 1.0 if placement.shows_all(*size) else aligned.shown,
        "residual": aligned.residual, "colours": aligned.colours,
    }  # fmt: skip
