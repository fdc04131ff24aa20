"""The pictures of a dataset that was published without them: hashes, and thumbnails."""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa

from glit.attaching.align import Looks, looks_of
from glit.attaching.lookup import Described, Index, describe_published
from glit.data.bounded_parquet import BoundedParquet
from glit.dataset.reader import Dataset
from glit.errors import DatasetError, first_line
from glit.exporters.annotations import PICTURES
from glit.images import ImageError, decode
from glit.runtime.cores import usable_cores
from glit.runtime.prefetch import map_ahead

_RECENT, _GROUPS = 64, 16
"""Thumbnails, and row groups of them, that are kept."""
_MOST_PIXELS = 1 << 20
"""Most pixels of a thumbnail."""
_DIGEST = 32
"""Bytes of a SHA-256; the first eight sort it."""
_NAMESAKES = 4
"""Samples of one file name, at most, among which the name proposes."""


class ByHash:
    """Samples by a SHA-256: 48 bytes each, where a dictionary would take 300.

    Args:
        columns: hashes of all samples in order, hexadecimal, in parts; null where one is not known.

    Raises:
        ValueError: one of them is no hash.
    """

    def __init__(self, columns: Iterable[pa.ChunkedArray]) -> None:
        found, known = [], []
        for column in columns:
            known.append(np.asarray(column.is_valid()))
            held = bytes.fromhex("".join(column.fill_null("0" * 2 * _DIGEST).to_pylist()))
            found.append(np.frombuffer(held, np.uint8).reshape(len(column), _DIGEST))
        self.digests = np.concatenate(found)
        """uint8 [N, 32]; zeros where one is not known."""
        samples = np.flatnonzero(np.concatenate(known))
        keys = _keys(self.digests)[samples]
        order = np.argsort(keys, kind="stable")
        self._keys, self._samples = keys[order], samples[order]

    def get(self, value: str | None) -> list[int]:
        """Return the numbers of the samples of a hash, ascending."""
        if not value:
            return []
        digest = np.frombuffer(bytes.fromhex(value), np.uint8)
        key = _keys(digest[None])[0]
        start, stop = (np.searchsorted(self._keys, key, side=side) for side in ("left", "right"))
        own = self._samples[start:stop].tolist()
        return [sample for sample in own if np.array_equal(self.digests[sample], digest)]

    def __contains__(self, value: str) -> bool:
        return bool(self.get(value))

    def hex(self, sample: int) -> str:
        """Return the hash of a sample."""
        return self.digests[sample].tobytes().hex()


def _keys(digests: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(digests[:, :8]).view(">u8")[:, 0].astype(np.uint64)


class PublishedPictures:
    """The hashes and thumbnails of a dataset's pictures; thumbnails are read when they are wanted.

    Args:
        dataset: the published dataset.
        path: a local copy of its ``pictures.parquet``.

    Raises:
        DatasetError: the file is damaged, or not this dataset's.
    """

    def __init__(self, dataset: Dataset, path: Path) -> None:
        self._dataset = dataset
        try:
            self._file = BoundedParquet(path)
            groups = range(self._file.num_row_groups)
            told = [self._file.metadata.row_group(n).num_rows for n in groups]
            self.by_bytes = ByHash(self._column(n, "sample_id") for n in groups)
            """The samples by the hash of their file."""
            self.by_pixels = ByHash(self._column(n, "pixels_sha256") for n in groups)
            """The samples by the hash of their pixels."""
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DatasetError(f"{dataset.path}/{PICTURES}: {first_line(error)}") from error
        self._groups: OrderedDict[int, Any] = OrderedDict()
        self._ends = np.cumsum(told)
        self.has_thumbnails = self._thumbnail(0) is not None
        names = ["source_path", "width", "height"]
        rows = pa.concat_tables(
            dataset.table(names, row_group=n) for n in range(len(dataset.places))
        )
        ids = (dataset.table(["sample_id"], row_group=n) for n in range(len(dataset.places)))
        own = ByHash(each["sample_id"] for each in ids)
        if not np.array_equal(own.digests, self.by_bytes.digests):
            raise DatasetError(
                f"{dataset.path}/{PICTURES}: its samples are not those of the data files; export "
                "the dataset again"
            )
        self._paths = rows["source_path"].combine_chunks()
        self._sizes = np.stack([rows["width"].to_numpy(), rows["height"].to_numpy()], axis=1)
        self._recent: OrderedDict[int, Looks] = OrderedDict()
        self._lock = threading.Lock()

    def _column(self, group: int, name: str) -> pa.ChunkedArray:
        return self._file.read_row_group(group, columns=[name])[name]

    def size(self, sample: int) -> tuple[int, int]:
        """Return width and height of a sample's picture."""
        width, height = map(int, self._sizes[sample])
        return width, height

    def stems(self, samples: Sequence[int]) -> dict[str, list[int]]:
        """Return the places of samples by their file's name; not of names that many have."""
        found = defaultdict(list)
        for place, sample in enumerate(samples):
            found[stem(self._paths[sample].as_py())].append(place)
        return {name: places for name, places in found.items() if len(places) <= _NAMESAKES}

    def index(self, samples: Sequence[int]) -> Index:
        """Return the index of some samples."""
        with ThreadPoolExecutor(usable_cores()) as pool:
            return Index(list(map_ahead(pool, self._described, samples, most=2 * usable_cores())))

    def looks(self, sample: int) -> Looks:
        """Return a sample's picture as it is compared."""
        with self._lock:
            known = self._recent.get(sample)
            data = b"" if known is not None else self._thumbnail(sample) or b""
        if known is not None:
            return known
        try:
            known = looks_of(decode(data, max_pixels=_MOST_PIXELS), self.size(sample))
        except ImageError as error:
            raise DatasetError(
                f"{self._dataset.path}/{PICTURES}: the thumbnail of {self.by_bytes.hex(sample)} is "
                f"damaged ({error})"
            ) from error
        with self._lock:
            self._recent[sample] = known
            while len(self._recent) > _RECENT:
                self._recent.popitem(last=False)
        return known

    def _thumbnail(self, sample: int) -> bytes | None:
        group = int(np.searchsorted(self._ends, sample, side="right"))
        if group not in self._groups:
            table = self._file.read_row_group(group, columns=["thumbnail"])
            self._groups[group] = table["thumbnail"].combine_chunks()
            while len(self._groups) > _GROUPS:
                self._groups.popitem(last=False)
        held = self._groups[group]
        return held[sample - (int(self._ends[group]) - len(held))].as_py()

    def _described(self, sample: int) -> Described:
        return describe_published(self.looks(sample))


def stem(path: str) -> str:
    """Return a file's name without folder, ending and case.

    >>> stem("a/Dog.01.JPG")
    'dog.01'
    """
    return PurePosixPath(path).stem.casefold()
