"""Parquet with an embedded SHA-256, checked on read.

The digest is a value of the footer's metadata, taken while zeros stand in its place, so that the
file stays one that any reader of Parquet opens.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from glit.data.bounded_parquet import BoundedParquet
from glit.data.limits import IMAGES_BYTES
from glit.data.parquet import PINNED

_KEY = b"glit.sha256"
_HEX = 64
_VALUE = b"\x18\x40"
"""Bytes that Thrift's compact protocol puts between key and value: a string, of 64 bytes."""


class SealError(ValueError):
    """The file's bytes do not match its digest."""


def write_sealed(table: pa.Table, path: Path) -> None:
    """Write a Parquet file with pinned settings and an embedded SHA-256."""
    with pq.ParquetWriter(path, table.schema, **PINNED) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({_KEY.decode(): "0" * _HEX})
    data = path.read_bytes()
    at = _place(data)
    assert at is not None and data[at : at + _HEX] == b"0" * _HEX, f"no place for a seal in {path}"
    with path.open("r+b") as file:
        file.seek(at)
        file.write(_digest(data, at))


def read_sealed(data: bytes) -> BoundedParquet:
    """Check a file's embedded SHA-256 and open it for reading; a digest is no promise of what its
    pages decode to.

    Raises:
        SealError: it is not, or there is none.
    """
    at = _place(data)
    if at is None:
        raise SealError("it has no digest")
    if data[at : at + _HEX] != _digest(data, at):
        raise SealError("its bytes are not those that were written")
    return BoundedParquet(pa.BufferReader(data), most=IMAGES_BYTES)


def _place(data: bytes) -> int | None:
    """The offset of the digest in the file."""
    found = data.rfind(_KEY + _VALUE)
    at = found + len(_KEY + _VALUE)
    return None if found < 0 or at + _HEX > len(data) else at


def _digest(data: bytes, at: int) -> bytes:
    digest = hashlib.sha256(data[:at])
    digest.update(b"0" * _HEX)
    digest.update(data[at + _HEX :])
    return digest.hexdigest().encode()
