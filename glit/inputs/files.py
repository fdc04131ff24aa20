"""Read a build's images by path: files below a root, and members of shards."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import threading
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from glit.images.formats import (
    HEAD_BYTES,
    IMAGE_SUFFIXES,
    OTHER_IMAGE_SUFFIXES,
    is_picture,
    suffix_of,
    tells_nothing,
)
from glit.inputs.archive import ArchiveShard, Member
from glit.inputs.table import TableShard, member
from glit.inputs.tar import SCHEMA, scan, tar_shard
from glit.inputs.zip import ZipMember, scan_zip, zip_shard
from glit.storage.checksummed_parquet import SealError, read_sealed, write_sealed
from glit.storage.members import DAMAGED, join, sidecar_roles, split
from glit.storage.store import Entry, Store

MOST_BYTES = 1 << 30
"""Most bytes of a file or a member of a shard: a larger one is no image but would fill the memory.
"""
_OPEN = 8
_SCAN = " 3"
"""Version of the indexes of tars; before, hard links were refused in them."""
_BUFFER = 1 << 20


class ImageFiles(Store):
    """A store whose ``read`` also reads members of shards.

    Args:
        root: folder or address.
        index: folder or address where the indexes of tars are kept; empty to keep none.
    """

    def __init__(self, root: str | os.PathLike[str], *, index: str = "") -> None:
        super().__init__(root)
        self._index = index
        self._lock = threading.Lock()
        self._shards: OrderedDict[str, ArchiveShard | TableShard] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (self.root, self._index))

    def read(self, path: str) -> bytes:
        """A file's bytes, or a member's.

        Raises:
            OSError: it is missing, cannot be read, or has more than :data:`MOST_BYTES`.
            StorageError: the store cannot be reached.
        """
        place = split(path)
        if place is None:
            if self.is_local and self.entry(path).size > MOST_BYTES:
                raise OSError(errno.EFBIG, f"more than {MOST_BYTES} bytes", path)
            return super().read(path)
        return self._shard(place[0]).read(place[1])

    def members(self, shard: Entry, *, beside: Sequence[str] = ()) -> Iterator[Entry]:
        """List the images in a shard; empty for a table without images.

        What is damaged or may not be used is there with the size that says so.

        Args:
            shard: of a listing.
            beside: suffixes of other files in it that are wanted, of role 1, 2 and so on.

        Raises:
            InputError: several columns of a table may hold the images.
        """
        try:
            opened = self._opened(shard)
        except OSError:
            yield Entry(path=shard.path, size=DAMAGED, stamp=shard.stamp)
            return
        if isinstance(opened, TableShard):
            for row in range(opened.num_rows if opened.has_images else 0):
                path = join(shard.path, member(row))
                yield Entry(path=path, size=opened.size(row), stamp=shard.stamp)
            return
        archive, roles = self._archive(shard.path, opened), sidecar_roles(beside)
        legacy = [each.name for each in opened if isinstance(each, ZipMember) and each.legacy]
        if legacy:
            warnings.warn(
                f"{shard.path}: {len(legacy)} names are in a code page that the archive does not "
                f"tell, such as {legacy[0]!r}; pack it again with names in UTF-8",
                stacklevel=2,
            )
        for each in opened:
            path = join(shard.path, each.name) if each.name else shard.path
            suffix = suffix_of(each.name)
            if role := roles.get(suffix):
                yield Entry(path=path, size=each.size, stamp=shard.stamp, role=role)
            else:
                entry = Entry(path=path, size=each.size, stamp=shard.stamp)
                if not each.name or _is_image(each, archive):
                    yield entry

    def is_picture(self, entry: Entry) -> bool:
        """Return whether the first bytes of a file are those of a picture."""
        if entry.size < 0:
            return False
        try:
            return is_picture(self.read_range(entry.path, 0, HEAD_BYTES))
        except OSError:
            return False

    def _opened(self, shard: Entry) -> TableShard | list[Member]:
        if shard.size < 0:
            raise OSError(f"{shard.path} cannot be looked at")
        if shard.path.lower().endswith(".parquet"):
            return TableShard(self.for_arrow(shard.path), self.address(shard.path), size=shard.size)
        if _is_zip(shard.path):
            with self.open(shard.path) as file:
                return list(scan_zip(file, shard.size))
        return self._tar_members(shard)

    def _archive(self, path: str, members: list[Member]) -> ArchiveShard:
        make = zip_shard if _is_zip(path) else tar_shard
        return make(lambda start, end: self.read_range(path, start, end), members)

    def _shard(self, path: str) -> ArchiveShard | TableShard:
        with self._lock:
            if path not in self._shards:
                entry = super().entry(path)
                if entry.size < 0:
                    raise FileNotFoundError(path)
                opened = self._opened(entry)
                if not isinstance(opened, TableShard):
                    opened = self._archive(path, opened)
                self._shards[path] = opened
                if len(self._shards) > _OPEN:
                    self._shards.popitem(last=False)
            self._shards.move_to_end(path)
            return self._shards[path]

    def _tar_members(self, shard: Entry) -> list[Member]:
        """From the index, else from the archive's headers, for which all of it may be read."""
        key = hashlib.sha256(
            f"{shard.path} {shard.size} {shard.stamp}{_SCAN}".encode()
        ).hexdigest()[:16]
        kept = Store(self._index) if self._index else None
        if kept is not None:
            try:
                rows = read_sealed(kept.read(f"shards/{key}.parquet")).read().to_pylist()
                return [Member(**row) for row in rows]
            except (FileNotFoundError, SealError, pa.ArrowException):
                pass
        with self.open(shard.path) as file:
            # from afar the whole archive goes by, rather than a request for each header
            near = file if self.is_local else io.BufferedReader(file, _BUFFER)
            found = list(scan(near, shard.size))
        if kept is not None:
            rows = [{"name": m.name, "offset": m.offset, "size": m.size} for m in found]
            with kept.atomic(f"shards/{key}.parquet") as path:
                write_sealed(pa.Table.from_pylist(rows, schema=SCHEMA), path)
        return found


def _is_zip(path: str) -> bool:
    return path.lower().endswith(".zip")


def _is_image(found: Member, archive: ArchiveShard) -> bool:
    suffix = suffix_of(found.name)
    if suffix in IMAGE_SUFFIXES or suffix in OTHER_IMAGE_SUFFIXES:
        return True
    if found.size < 0 or not tells_nothing(found.name):
        return False
    return is_picture(archive.head(found, HEAD_BYTES))


def _reopen(root: str, index: str) -> ImageFiles:
    return ImageFiles(root, index=index)
