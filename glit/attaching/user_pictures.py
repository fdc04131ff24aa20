"""A user's picture files, looked at once: hashes, and what they are looked up by.

The files are listed and cut into parts; each part is one Parquet table in the work folder, named
after the files' names, sizes and times, so a stopped run goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from glit.attaching.align import looks_of
from glit.attaching.lookup import BYTES, Described, describe_found
from glit.errors import InputError, StorageError, first_line
from glit.exporters.annotations import pixels_sha256
from glit.images import ImageError, decode
from glit.inputs.files import ImageFiles
from glit.inputs.source import Source, entries, find_source
from glit.runtime.cores import usable_cores
from glit.runtime.prefetch import batched, map_ahead
from glit.storage.checksummed_parquet import SealError, read_sealed, write_sealed

if TYPE_CHECKING:
    from glit.runtime.progress import StageProgress

_VERSION = 3
"""Version of what is computed of a file."""
_FILES_A_PART = 256
_LISTED_AT_ONCE = 65_536
_LISTED = pa.schema(
    [
        ("source", pa.int32()), ("path", pa.large_string()), ("size", pa.int64()),
        ("stamp", pa.large_string()),
    ]
)  # fmt: skip
_SCHEMA = pa.schema(
    [
        ("sha256", pa.string()),
        ("pixels_sha256", pa.string()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("hashes", pa.binary()),
        ("signatures", pa.binary()),
        ("fault", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some of the user's files in a row, of which the work folder has a table."""

    name: str
    first: int
    """Number of the first file."""


class UserPictures:
    """The picture files in a user's folders, tars or tables, numbered: the folders in the order
    given, the files of each by name.

    Args:
        sources: what ``glit build`` takes as images.

    Raises:
        InputError: one of them does not exist, or there are no pictures.
    """

    def __init__(self, sources: Sequence[str]) -> None:
        found = [find_source(each) for each in sources]
        self._files = [ImageFiles(each.root) for each in found]
        listed = pa.concat_tables(_listed(each, number) for number, each in enumerate(found))
        if not len(listed):
            raise InputError("--images: no picture files there")
        self._listed = listed.combine_chunks()
        self._source, self._path = (
            self._listed[name].combine_chunks() for name in ("source", "path")
        )

    def __len__(self) -> int:
        return len(self._listed)

    def path(self, file: int) -> str:
        """Return a file's path in its folder."""
        return self._path[file].as_py()

    def read(self, file: int) -> bytes:
        """Return a file's bytes.

        Raises:
            OSError: it cannot be read.
        """
        return self._files[self._source[file].as_py()].read(self.path(file))

    def place(self, file: int) -> str:
        """Return the path that a dataset names: relative, with the folder's number if there are
        several."""
        path = self.path(file)
        return path if len(self._files) == 1 else f"{self._source[file].as_py()}/{path}"

    def parts(
        self, work: Path, wanted: Container[str], wanted_pixels: Container[str], key: str,
        progress: StageProgress,
    ) -> Iterator[tuple[Part, pa.Table]]:  # fmt: skip
        """Look at all files, in order; what was looked at before is read.

        Args:
            work: folder of the tables.
            wanted: hashes of files that need no further look.
            wanted_pixels: hashes of pixels that need none.
            key: of what is wanted.
            progress: counts the files.
        """
        progress.begin("look at pictures", total=len(self), done=0, drops=False)
        with ThreadPoolExecutor(usable_cores()) as pool:
            for first in range(0, len(self), _FILES_A_PART):
                some = self._listed.slice(first, _FILES_A_PART)
                listed = [[*row.values()] for row in some.to_pylist()]
                said = json.dumps([_VERSION, key, listed])
                name = f"files-{hashlib.sha256(said.encode()).hexdigest()[:24]}.parquet"
                table = read_whole(work / name)
                if table is None:
                    found = map_ahead(
                        pool, lambda file: self._look(file, wanted, wanted_pixels),
                        range(first, first + len(some)), most=2 * usable_cores(),
                    )  # fmt: skip
                    table = pa.Table.from_pylist(list(found), schema=_SCHEMA)
                    write_whole(table, work / name)
                progress.advance(len(some))
                yield Part(name=name, first=first), table

    def _look(
        self, file: int, wanted: Container[str], wanted_pixels: Container[str]
    ) -> dict[str, Any]:
        row: dict[str, Any] = {}
        try:
            data = self.read(file)
            row["sha256"] = hashlib.sha256(data).hexdigest()
            if row["sha256"] in wanted:
                return row
            pixels = decode(data)
        except (OSError, ImageError, StorageError) as error:
            return {**row, "fault": first_line(error)}
        row |= {"width": pixels.shape[1], "height": pixels.shape[0]}
        row["pixels_sha256"] = pixels_sha256(pixels)
        if row["pixels_sha256"] in wanted_pixels:
            return row
        told = describe_found(looks_of(pixels))
        return {
            **row, "hashes": told.hashes.tobytes(), "signatures": told.signatures.tobytes()
        }  # fmt: skip


def _listed(source: Source, number: int) -> pa.Table:
    """Table of one source's files, sorted by path; 100 bytes a file, as Python objects 400."""
    wanted = (each for each in entries(source) if each.role == 0 and _can_be_named(each.path))
    tables = [_LISTED.empty_table()]
    for some in batched(wanted, _LISTED_AT_ONCE):
        paths, sizes, stamps, _ = zip(*some, strict=True)
        tables.append(pa.table([[number] * len(some), paths, sizes, stamps], schema=_LISTED))
    return pa.concat_tables(tables).sort_by("path")


def described(row: dict[str, Any]) -> Described:
    """Return what a file is looked up by, of a row of the index."""
    signed = np.frombuffer(row["signatures"] or b"", np.uint8).reshape(-1, BYTES)
    return Described(hashes=np.frombuffer(row["hashes"] or b"", np.uint64), signatures=signed)


def write_whole(table: pa.Table, path: Path) -> None:
    """Write a table with a digest: one that exists is complete."""
    temporary = path.with_suffix(".tmp")
    write_sealed(table, temporary)
    temporary.replace(path)


def read_whole(path: Path) -> pa.Table | None:
    """Return a table that :func:`write_whole` wrote; None if there is none that is whole."""
    try:
        return read_sealed(path.read_bytes()).read()
    except (OSError, SealError, pa.ArrowException):
        return None


def _can_be_named(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
