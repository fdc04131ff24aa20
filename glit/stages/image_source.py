"""Decoded images of samples, read ahead of the model by threads."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from glit.ahead import map_ahead
from glit.images import ImageError, Pixels, decode
from glit.records import Drop, Sample
from glit.storage import Store


class ImageSource:
    """Where a stage's images come from.

    Args:
        store: where the images lie.
        threads: decoders at work.
        ahead: images decoded before they are asked for, which bounds the memory; 0 takes 32, or
            four for each of many threads.
    """

    def __init__(self, store: Store, *, threads: int = 2, ahead: int = 0) -> None:
        self._store = store
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="decode")
        self._ahead = ahead or max(32, 4 * threads)

    def load(self, sample: Sample) -> Pixels | Drop:
        """Pixels of a sample, or its drop if the file is missing, changed or damaged."""
        try:
            data = self._store.read(sample.source_path)
        except OSError as error:
            return Drop(reason="unreadable", message=str(error))
        if hashlib.sha256(data).hexdigest() != sample.sample_id:
            return Drop(reason="image_changed", message="the file's bytes are not those of ingest")
        try:
            return decode(data)
        except ImageError as error:
            return Drop(reason=error.reason, message=str(error))

    def each(self, samples: Sequence[Sample]) -> Iterator[Pixels | Drop]:
        """Pixels or a drop for each sample, in order."""
        return map_ahead(self._pool, self.load, samples, most=self._ahead)

    def text(self, path: str) -> str | None:
        """A small text file beside the images; None when there is none."""
        try:
            return self._store.read(path).decode("utf-8-sig")
        except FileNotFoundError:
            return None
