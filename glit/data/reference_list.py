"""A file that tells a set of images by hashes and thumbnails, without the images.

Parquet with a row for each image: ``name``, ``sha256`` of the file's bytes (32 bytes), and
``thumbnail`` (4,096 bytes of grey).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from glit.data.parquet import PINNED
from glit.data.resemblance import THUMBNAIL_PX, References, Thumbnail, Thumbnails
from glit.errors import InputError, first_line

_BYTES = THUMBNAIL_PX**2
_SCHEMA = pa.schema(
    [("name", pa.string()), ("sha256", pa.binary(32)), ("thumbnail", pa.binary(_BYTES))],
    metadata={"glit.references": "1"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """An image of a list."""

    name: str
    sha256: str
    """Of the file's bytes, hex."""
    thumbnail: Thumbnail


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A reference that an image is, or resembles."""

    name: str
    kind: str
    """``same file``, or ``same picture`` with what was done to it."""
    correlation: float
    """Of the thumbnails; 1 for the same file."""


def list_bytes(references: Sequence[Reference]) -> bytes:
    """The file of a list, sorted by name."""
    ordered = sorted(references, key=lambda each: (each.name, each.sha256))
    columns = [
        [each.name for each in ordered],
        [bytes.fromhex(each.sha256) for each in ordered],
        [each.thumbnail.tobytes() for each in ordered],
    ]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(arrays, schema=_SCHEMA), sink, **PINNED)
    return sink.getvalue().to_pybytes()


class ReferenceList:
    """Images that are not wanted, to compare others with.

    Args:
        data: of a file that ``glit references`` wrote.
        path: the file's, for messages.

    Raises:
        InputError: it is no such file.
    """

    def __init__(self, data: bytes, path: str) -> None:
        self.sha256 = hashlib.sha256(data).hexdigest()
        try:
            table = pq.read_table(pa.BufferReader(data))
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{path}: no list of references ({first_line(error)})") from error
        if not table.schema.equals(_SCHEMA) or table.column("thumbnail").null_count:
            raise InputError(
                f"{path}: no list of references; make one of images with 'glit references IMAGES "
                "-o LIST.parquet'"
            )
        self._names: list[str] = table["name"].to_pylist()
        self._digests: list[bytes] = table["sha256"].to_pylist()
        self._number = {digest: n for n, digest in enumerate(self._digests)}
        self._thumbnails = _thumbnails(table["thumbnail"])
        self._references = References(self._thumbnails)

    def __len__(self) -> int:
        return len(self._names)

    def named(self, name: str) -> Reference:
        """The first image of this name."""
        number = self._names.index(name)
        digest = self._digests[number].hex()
        return Reference(name=name, sha256=digest, thumbnail=self._thumbnails[number])

    def find(
        self, sample_ids: Sequence[str], thumbnails: Sequence[Thumbnail]
    ) -> list[Found | None]:
        """For each image the reference that it is or resembles, if there is one.

        Args:
            sample_ids: SHA-256 of the images' files, hex.
            thumbnails: of the images, by :func:`glit.data.resemblance.thumbnail`.
        """
        if not thumbnails:
            return []
        resembled = self._references.resembled(np.stack(thumbnails))
        found: list[Found | None] = []
        for sample_id, other in zip(sample_ids, resembled, strict=True):
            same = self._number.get(bytes.fromhex(sample_id))
            if same is not None:
                found.append(Found(name=self._names[same], kind="same file", correlation=1.0))
            elif other is None:
                found.append(None)
            else:
                name = self._names[other.reference]
                found.append(Found(name=name, kind=other.kind, correlation=other.correlation))
        return found


def _thumbnails(column: pa.ChunkedArray) -> Thumbnails:
    data = b"".join(column.to_pylist())
    return np.frombuffer(data, np.uint8).reshape(-1, THUMBNAIL_PX, THUMBNAIL_PX)
