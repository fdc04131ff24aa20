"""Decoded images of samples, read ahead of the model by threads."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from glit.data.records import Drop, Sample
from glit.images import NO_LIMIT, ImageError, Pixels, decode, picture_frame
from glit.inputs.lookup import NO_ROW, UserTable
from glit.inputs.region_file import rows_as_text
from glit.models.backends.base import Backend
from glit.runtime.prefetch import batched_by_weight, map_ahead
from glit.storage.members import in_cases, stem
from glit.storage.store import Store

T = TypeVar("T")
Loaded = tuple[Sample, Pixels | Drop]
MOST_BYTES = 1 << 30
"""Most bytes of decoded pixels that wait for a model, and of those that a model is given together:
thirty photographs of 12 megapixels, two of 150."""


class ImageSource:
    """The source of a stage's images.

    Args:
        store: where the images lie.
        threads: decoders at work.
        ahead: images decoded before they are asked for, at most, and at most ``MOST_BYTES`` of
            them; 0 takes 32, or four for each of many threads.
    """

    def __init__(self, store: Store, *, threads: int = 2, ahead: int = 0) -> None:
        self.store = store
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="decode")
        self._ahead = ahead or max(32, 4 * threads)

    def read(self, sample: Sample) -> bytes | Drop:
        """The encoded file of a sample, or its drop if the file is missing or changed."""
        try:
            data = self.store.read(sample.source_path)
        except OSError as error:
            return Drop(reason="unreadable", message=str(error))
        if hashlib.sha256(data).hexdigest() != sample.sample_id:
            return Drop(reason="image_changed", message="the file's bytes are not those of ingest")
        return data

    def load(self, sample: Sample) -> Pixels | Drop:
        """Pixels of a sample, or its drop if the file is missing, changed or damaged."""
        data = self.read(sample)
        if isinstance(data, Drop):
            return data
        try:
            return decode(data, max_pixels=NO_LIMIT)  # ingest has checked it
        except ImageError as error:
            return Drop(reason=error.reason, message=str(error))

    def each(self, samples: Sequence[Sample]) -> Iterator[Pixels | Drop]:
        """Pixels or a drop for each sample, in order."""
        return map_ahead(
            self._pool,
            self.load,
            samples,
            most=self._ahead,
            weight=num_bytes,
            heaviest=MOST_BYTES,
        )

    def each_mapped(
        self, samples: Sequence[Sample], read: Callable[[bytes], T]
    ) -> Iterator[T | Drop]:
        """The result of a function of the encoded file for each sample, or a drop, in order."""

        def mapped(sample: Sample) -> T | Drop:
            data = self.read(sample)
            return data if isinstance(data, Drop) else read(data)

        return map_ahead(self._pool, mapped, samples, most=self._ahead)

    def text(self, path: str) -> str | None:
        """A small text file beside the images; None when there is none."""
        for name in in_cases(path):
            try:
                return self.store.read(name).decode("utf-8-sig")
            except FileNotFoundError:
                continue
        return None


def loaded_batches(
    samples: Sequence[Sample], images: ImageSource, size: int
) -> Iterator[list[Loaded]]:
    """Up to ``size`` samples together with their pixels or drops, in order; fewer large ones."""
    loaded = zip(samples, images.each(samples), strict=True)
    return batched_by_weight(
        loaded, size, weight=lambda item: num_bytes(item[0]), heaviest=MOST_BYTES
    )


def read_files(
    samples: Sequence[Sample],
    images: ImageSource,
    backend: Backend,
    table: UserTable | None,
    read: Callable[..., list[T]],
) -> Iterator[list[T] | Drop]:
    """Yield the results of ``read(text, width=, height=)`` for each sample, or a drop; the text is
    the file beside its image, or its rows of the user's regions. Those of its twins are its own as
    well, each once."""
    given = table if backend.brings else None
    rows = {} if given is None else given.rows([sample.source_path for sample in samples])
    for sample in samples:
        if given is None:
            texts = _texts_beside(sample, backend.beside, images)
        else:
            own = [*rows.get(sample.source_path, ()), *_of_twins(given, sample)]
            none = _no_annotation(f"{given.name} {NO_ROW} {sample.source_path}")
            texts = [(given.name, rows_as_text(own) if own else none)]
        found: list[T] = []
        for name, text in texts:
            if isinstance(text, Drop):
                yield text
                break
            try:
                size = {"width": sample.width, "height": sample.height}
                each = read(text, **size, orientation=partial(_orientation, sample, images))
            except ValueError as error:
                yield Drop(reason="bad_masks", message=f"{name}: {error}")
                break
            found += [one for one in each if one not in found] if found else each
        else:
            yield found


def _of_twins(table: UserTable, sample: Sample) -> Iterator[dict[str, Any]]:
    """Yield the rows of a sample's twins; of equal ones of several paths those of the first."""
    own = table.rows([sample.source_path]).get(sample.source_path, ()) if sample.twins else ()
    seen = {row["region"]: sample.source_path for row in own}
    for path, rows in table.rows(sample.twins).items():
        yield from (row for row in rows if seen.setdefault(row["region"], path) == path)


def _orientation(sample: Sample, images: ImageSource) -> int:
    """EXIF orientation of a sample's file; 1 if it cannot be read, which other stages report."""
    try:
        return picture_frame(images.store.read(sample.source_path))[2]
    except (OSError, ImageError):
        return 1


def _texts_beside(sample: Sample, suffix: str, images: ImageSource) -> list[tuple[str, str | Drop]]:
    """Names and texts of the files beside a sample's image and its twins that are there, each text
    once; else why there is none."""
    found: dict[str | Drop, str] = {}
    for path in (sample.source_path, *sample.twins):
        name = stem(path) + suffix
        found.setdefault(_text_beside(name, images), name)
    texts = [(name, text) for text, name in found.items()]
    return [each for each in texts if isinstance(each[1], str)] or texts[:1]


def _text_beside(name: str, images: ImageSource) -> str | Drop:
    try:
        text = images.text(name)
    except (OSError, UnicodeError) as error:
        return _no_annotation(f"{name} cannot be read: {error}")
    return _no_annotation(f"there is no {posixpath.basename(name)}") if text is None else text


def _no_annotation(message: str) -> Drop:
    return Drop(reason="no_annotation", message=message)


def num_bytes(sample: Sample) -> int:
    """Return the size of its decoded pixels in bytes."""
    return 3 * sample.width * sample.height
