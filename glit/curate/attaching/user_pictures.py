"""A user's picture files, looked at once: hashes, and what they are looked up by.

The files are listed and cut into parts; each part is one Parquet table in the work folder, named
after the files' names, sizes and times, so a stopped run goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from glit.curate.attaching.align import looks_of
from glit.curate.attaching.annotations import pixels_sha256
from glit.curate.attaching.choice import MEMORY
from glit.curate.attaching.lookup import BYTES, Described, describe_found
from glit.curate.attaching.published import Hashes
from glit.curate.attaching.work_tables import StoredRows, read_whole, write_whole
from glit.errors import StorageError, first_line
from glit.images import ImageError, decode
from glit.inputs.files import ImageFiles
from glit.inputs.source import Source, entries, find_source
from glit.runtime.cores import usable_cores
from glit.runtime.prefetch import batched, map_ahead
from glit.storage.duckdb_temp import quoted, spilling

if TYPE_CHECKING:
    from glit.runtime.progress import StageProgress

_VERSION = 3
"""Version of what is computed of a file."""
_FILES_A_PART = 256
_LISTED_AT_ONCE = 16_384
_LISTED = "CREATE TABLE listed (source INTEGER, path VARCHAR, size BIGINT, stamp VARCHAR)"
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
    number: int
    """Of its files."""


class UserPictures:
    """The picture files in a user's folders, tars or tables, numbered: the folders in the order
    given, the files of each by name.

    Args:
        sources: what ``glit build`` takes as images.

    Raises:
        InputError: one of them does not exist.
    """

    def __init__(self, sources: Sequence[str]) -> None:
        self._sources = [find_source(each) for each in sources]
        self._files = [ImageFiles(each.root) for each in self._sources]

    def list_files(self, work: Path) -> int:
        """List all files, in a table of the work folder, before any is read; return how many.

        Raises:
            RunError: the disk of the work folder is full.
        """
        path = work / "listing.parquet"
        with spilling(work, memory=MEMORY) as connection:
            connection.execute(_LISTED)
            for number, source in enumerate(self._sources):
                for some in _named(source, number):
                    connection.from_arrow(some).insert_into("listed")
            target = f"'{quoted(path)}' (FORMAT parquet, ROW_GROUP_SIZE 16384)"
            connection.execute(f"COPY (SELECT * FROM listed ORDER BY source, path) TO {target}")
        self._listed = StoredRows(path)
        return len(self)

    def __len__(self) -> int:
        return len(self._listed)

    def read(self, source: int, path: str) -> bytes:
        """Return the bytes of a file in a folder.

        Raises:
            OSError: it cannot be read.
        """
        return self._files[source].read(path)

    def place(self, source: int, path: str) -> str:
        """Return the path that a dataset names: relative, with the folder's number if there are
        several."""
        return path if len(self._files) == 1 else f"{source}/{path}"

    def listed(self, part: Part) -> list[tuple[int, str]]:
        """Return folder and path of the files of a part."""
        rows = self._listed.rows(part.first, part.number)
        return [*zip(rows["source"].to_pylist(), rows["path"].to_pylist(), strict=True)]

    def parts(
        self, work: Path, wanted: Hashes, wanted_pixels: Hashes, key: str,
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
                listed = [
                    (*row.values(),) for row in self._listed.rows(first, _FILES_A_PART).to_pylist()
                ]
                said = json.dumps([_VERSION, key, listed])
                name = f"files-{hashlib.sha256(said.encode()).hexdigest()[:24]}.parquet"
                table = read_whole(work / name)
                if table is None:
                    found = map_ahead(
                        pool, lambda each: self._look(each[0], each[1], wanted, wanted_pixels),
                        listed, most=2 * usable_cores(),
                    )  # fmt: skip
                    table = pa.Table.from_pylist(list(found), schema=_SCHEMA)
                    write_whole(table, work / name)
                progress.advance(len(listed))
                yield Part(name=name, first=first, number=len(listed)), table

    def _look(
        self, source: int, path: str, wanted: Hashes, wanted_pixels: Hashes
    ) -> dict[str, Any]:
        row: dict[str, Any] = {}
        try:
            data = self.read(source, path)
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


def _named(source: Source, number: int) -> Iterator[pa.Table]:
    """Tables of a source's files, unsorted."""
    wanted = (each for each in entries(source) if each.role == 0 and _can_be_named(each.path))
    for some in batched(wanted, _LISTED_AT_ONCE):
        paths, sizes, stamps, _ = zip(*some, strict=True)
        columns = {"source": [number] * len(some), "path": paths, "size": sizes, "stamp": stamps}
        yield pa.table(columns)


def described(row: dict[str, Any]) -> Described:
    """Return what a file is looked up by, of a row of the index."""
    signed = np.frombuffer(row["signatures"] or b"", np.uint8).reshape(-1, BYTES)
    return Described(hashes=np.frombuffer(row["hashes"] or b"", np.uint64), signatures=signed)


def _can_be_named(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
