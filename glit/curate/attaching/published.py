"""The pictures of a dataset that was published without them: hashes, and thumbnails."""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from glit.curate.attaching.align import Looks, looks_of
from glit.curate.attaching.lookup import Described, Index, describe_published
from glit.curate.attaching.work_tables import GrowingTable
from glit.data.bounded_parquet import BoundedParquet
from glit.data.schema import PICTURES
from glit.dataset.reader import Dataset
from glit.errors import DatasetError, first_line
from glit.images import ImageError, decode
from glit.runtime.cores import usable_cores
from glit.runtime.prefetch import map_ahead

if TYPE_CHECKING:
    from jaxtyping import UInt64

_RECENT, _GROUPS = 64, 16
"""Thumbnails, and row groups of them, that are kept."""
_MOST_PIXELS = 1 << 20
"""Most pixels of a thumbnail."""
_DIGEST, _KEY = 32, 16
"""Bytes of a SHA-256, and hexadecimal digits of its first eight."""
_HASHES = pa.schema([("sha256", pa.string()), ("pixels_sha256", pa.string())])
_NOT_THESE = "its samples are not those of the data files; export the dataset again"
_NAMESAKES = 4
"""Samples of one file name, at most, among which the name proposes."""


class Hashes:
    """The first eight bytes of many SHA-256, sorted: says of nearly all others that they are not
    among them.

    Args:
        keys: of the hashes, unsorted.
    """

    def __init__(self, keys: Sequence[UInt64[np.ndarray, " N"]]) -> None:
        self._keys = np.sort(np.concatenate(keys))

    def __contains__(self, value: str | None) -> bool:
        if not value:
            return False
        key = np.uint64(int(value[:_KEY], 16))
        place = np.searchsorted(self._keys, key)
        return bool(place < len(self._keys) and self._keys[place] == key)


class PublishedPictures:
    """The hashes and thumbnails of a dataset's pictures; thumbnails are read when they are wanted.

    Args:
        dataset: the published dataset.
        path: a local copy of its ``pictures.parquet``.
        work: folder that gets a table of the hashes.

    Raises:
        DatasetError: the file is damaged, or not this dataset's.
    """

    def __init__(self, dataset: Dataset, path: Path, work: Path) -> None:
        self._dataset = dataset
        try:
            self._file = BoundedParquet(path)
            groups = range(self._file.num_row_groups)
            told = [self._file.metadata.row_group(n).num_rows for n in groups]
            self.bytes, self.pixels = self._hashes(work / "published.parquet")
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DatasetError(f"{dataset.path}/{PICTURES}: {first_line(error)}") from error
        self._groups: OrderedDict[int, Any] = OrderedDict()
        self._ends = np.cumsum(told)
        self.has_thumbnails = self.thumbnail(0) is not None

    def _hashes(self, target: Path) -> tuple[Hashes, Hashes]:
        """Write the hashes of all samples in order; return those of files, and of pixels."""
        own = (
            each
            for n in range(len(self._dataset.places))
            for each in self._dataset.table(["sample_id"], row_group=n)["sample_id"].to_pylist()
        )
        columns = ["sample_id", "pixels_sha256"]
        table = GrowingTable(target, _HASHES)
        keys = ([np.empty(0, np.uint64)], [np.empty(0, np.uint64)])
        for group in range(self._file.num_row_groups):
            some = self._file.read_row_group(group, columns=columns)
            if some["sample_id"].to_pylist() != [*islice(own, len(some))]:
                raise ValueError(_NOT_THESE)
            for name, found in zip(columns, keys, strict=True):
                found.append(_keys(some[name]))
            table.append(some.rename_columns(_HASHES.names).cast(_HASHES))
        table.close()
        if next(own, None) is not None:
            raise ValueError(_NOT_THESE)
        return Hashes(keys[0]), Hashes(keys[1])

    def samples(self, numbers: range) -> PublishedSamples:
        """Return consecutive samples, to be compared with."""
        return PublishedSamples(self._dataset, self, numbers)

    def thumbnail(self, sample: int) -> bytes | None:
        """Return a sample's thumbnail, encoded; None if it was published without."""
        group = int(np.searchsorted(self._ends, sample, side="right"))
        if group not in self._groups:
            table = self._file.read_row_group(group, columns=["thumbnail"])
            self._groups[group] = table["thumbnail"].combine_chunks()
            while len(self._groups) > _GROUPS:
                self._groups.popitem(last=False)
        held = self._groups[group]
        return held[sample - (int(self._ends[group]) - len(held))].as_py()


class PublishedSamples:
    """Consecutive samples of a dataset, with what their pictures are found by.

    Args:
        dataset: the published dataset.
        pictures: its thumbnails.
        numbers: of the samples.
    """

    def __init__(self, dataset: Dataset, pictures: PublishedPictures, numbers: range) -> None:
        self._dataset, self._pictures, self._numbers = dataset, pictures, numbers
        names = ["source_path", "width", "height"]
        rows, start = [], 0
        for group, place in enumerate(dataset.places):
            low, high = max(numbers.start, start), min(numbers.stop, start + place.num_rows)
            if low < high:
                table = dataset.table(names, row_group=group)
                rows.append(table.slice(low - start, high - low))
            start += place.num_rows
        told = pa.concat_tables(rows)
        self._paths: list[str] = told["source_path"].to_pylist()
        self._sizes = np.stack([told["width"].to_numpy(), told["height"].to_numpy()], axis=1)
        self._recent: OrderedDict[int, Looks] = OrderedDict()
        self._lock = threading.Lock()

    def size(self, place: int) -> tuple[int, int]:
        """Return width and height of the picture of one of the samples."""
        width, height = map(int, self._sizes[place])
        return width, height

    def stems(self) -> dict[str, list[int]]:
        """Return the places of samples by their file's name; not of names that many have."""
        found = defaultdict(list)
        for place, path in enumerate(self._paths):
            found[stem(path)].append(place)
        return {name: places for name, places in found.items() if len(places) <= _NAMESAKES}

    def index(self) -> Index:
        """Return an index of these samples, which proposes candidates for a picture."""
        places = range(len(self._numbers))
        with ThreadPoolExecutor(usable_cores()) as pool:
            return Index(list(map_ahead(pool, self._described, places, most=2 * usable_cores())))

    def looks(self, place: int) -> Looks:
        """Return the picture of one of the samples as it is compared.

        Raises:
            DatasetError: its thumbnail is damaged.
        """
        with self._lock:
            known = self._recent.get(place)
            data = b"" if known is not None else self._pictures.thumbnail(self._numbers[place])
        if known is not None:
            return known
        try:
            known = looks_of(decode(data or b"", max_pixels=_MOST_PIXELS), self.size(place))
        except ImageError as error:
            raise DatasetError(
                f"{self._dataset.path}/{PICTURES}: the thumbnail of {self._paths[place]} is "
                f"damaged ({error})"
            ) from error
        with self._lock:
            self._recent[place] = known
            while len(self._recent) > _RECENT:
                self._recent.popitem(last=False)
        return known

    def _described(self, place: int) -> Described:
        return describe_published(self.looks(place))


def _keys(hashes: pa.ChunkedArray) -> UInt64[np.ndarray, " N"]:
    """The first eight bytes of hexadecimal hashes; ValueError if one of them is none."""
    known = hashes.drop_null().to_pylist()
    digests = bytes.fromhex("".join(known))
    if any(len(each) != 2 * _DIGEST for each in known):
        raise ValueError("one of its hashes is no SHA-256")
    return np.frombuffer(digests, ">u8").reshape(-1, _DIGEST // 8)[:, 0].astype(np.uint64)


def stem(path: str) -> str:
    """Return a file's name without folder, ending and case.

    >>> stem("a/Dog.01.JPG")
    'dog.01'
    """
    return PurePosixPath(path).stem.casefold()
