"""What every stage is: one record in, one record or one drop out, in order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import ClassVar, Protocol, TypeVar

from glit.errors import GlitError
from glit.images import ImageError, Pixels, decode
from glit.records import Drop, Sample
from glit.storage import Store

Outcome = Sample | Drop
In = TypeVar("In")
Out = TypeVar("Out")


class Stage(Protocol):
    """A step of the flow, opened once in a worker and then fed chunks.

    ``process`` answers with exactly one outcome per sample, in order.
    """

    name: ClassVar[str]

    def process(self, samples: Sequence[Sample], images: ImageSource) -> Iterator[Outcome]: ...


class ImageSource:
    """Decoded images of samples, read ahead of the model by threads.

    Args:
        store: where the images lie.
        threads: decoders at work.
        ahead: images decoded before they are asked for; bounds the memory.
    """

    def __init__(self, store: Store, *, threads: int = 2, ahead: int = 32) -> None:
        self._store = store
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="decode")
        self._ahead = ahead

    def load(self, sample: Sample) -> Pixels | Drop:
        """Pixels of a sample, or the drop it becomes if its file is gone or another one."""
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
        waiting = iter(samples)
        queue: list[Future[Pixels | Drop]] = [
            self._pool.submit(self.load, sample) for sample in islice(waiting, self._ahead)
        ]
        while queue:
            result = queue.pop(0).result()
            for sample in islice(waiting, 1):
                queue.append(self._pool.submit(self.load, sample))
            yield result

    def text(self, path: str) -> str | None:
        """A small text file beside the images; None when there is none."""
        try:
            return self._store.read(path).decode("utf-8-sig")
        except FileNotFoundError:
            return None


def batched(items: Iterable[In], size: int) -> Iterator[list[In]]:
    """Lists of at most ``size`` consecutive items."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def isolate(
    items: Sequence[In],
    run: Callable[[Sequence[In]], Sequence[Out]],
    *,
    reason: str = "model_error",
) -> list[Out | Drop]:
    """``run(items)``; when it raises, halves of it, down to single items that become drops.

    One bad sample therefore never takes its batch with it, and a batch too large for the
    device's memory is done in smaller ones. glit's own errors pass through: they concern the
    run, not a sample.
    """
    if not items:
        return []
    try:
        results = list(run(items))
    except GlitError:
        raise
    except Exception as error:  # noqa: BLE001 - any failure of a model becomes drops with a reason
        if len(items) == 1:
            return [Drop(reason=reason, message=f"{type(error).__name__}: {error}")]
        half = len(items) // 2
        return isolate(items[:half], run, reason=reason) + isolate(items[half:], run, reason=reason)
    assert len(results) == len(items), f"{len(results)} results for {len(items)} items"
    return list(results)
