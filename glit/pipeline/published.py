"""What the finished dataset was made of: a line a series in the work folder."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from glit.pipeline.listing import Chunk, series_of
from glit.storage.store import Store

_FILE = "published.sha256"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Of a series of the finished dataset."""

    images: str
    """Hash over what its images were."""
    content: str
    """Hash over what was shipped of them; see :class:`glit.pipeline.ledger.Ledger`."""


def note_published(work: Store, chunks: Sequence[Chunk], contents: Sequence[str]) -> None:
    """Keep what a dataset was made of; to be called before its manifest is written."""
    lines = zip(identities(chunks), contents, strict=True)
    work.write(_FILE, "".join(f"{images} {content}\n" for images, content in lines).encode())


def published(work: Store) -> list[Published] | None:
    """What was noted last, by series; None where the note is gone or damaged.

    There may be more of it than the dataset has: an addition that was stopped just before its
    manifest has noted itself already.
    """
    if not work.exists(_FILE):
        return None
    try:
        lines = [line.split() for line in work.read(_FILE).decode().splitlines()]
        return [Published(images=images, content=content) for images, content in lines]
    except ValueError:  # not two words a line, or no text
        return None


def identities(chunks: Sequence[Chunk]) -> list[str]:
    """What images every series is made of: a hash over the keys of its chunks."""
    return [
        _hash([key for chunk in series for key in (chunk.key, *chunk.beside)])
        for series in series_of(chunks)
    ]


def _hash(keys: Sequence[str]) -> str:
    return hashlib.sha256(" ".join(keys).encode()).hexdigest()
