"""Clocks: seconds by part, decoding in threads, and kernels on a GPU."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from glit.data.records import Drop, Sample
from glit.images import Pixels
from glit.stages.image_source import ImageSource
from glit.storage.store import Store


class PartClock:
    """Wall seconds by part; whatever lies between parts is not counted."""

    def __init__(self, parts: Sequence[str]) -> None:
        self.seconds = dict.fromkeys(parts, 0.0)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what happens inside for a part."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - started


class TimedSource(ImageSource):
    """An image source that says how long its threads decoded and how long it was waited for."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._lock = threading.Lock()
        self.busy_s = 0.0
        """Seconds in ``load``, added over the threads."""
        self.wait_s = 0.0
        """Seconds a stage stood still for the next image."""

    def load(self, sample: Sample) -> Pixels | Drop:
        """See :meth:`glit.stages.image_source.ImageSource.load`."""
        started = time.perf_counter()
        try:
            return super().load(sample)
        finally:
            with self._lock:
                self.busy_s += time.perf_counter() - started

    def each(self, samples: Sequence[Sample]) -> Iterator[Pixels | Drop]:
        """See :meth:`glit.stages.image_source.ImageSource.each`."""
        images = super().each(samples)
        while True:
            started = time.perf_counter()
            try:
                image = next(images)
            except StopIteration:
                return
            finally:
                self.wait_s += time.perf_counter() - started
            yield image


@contextmanager
def watched_kernels() -> Iterator[list[float]]:
    """A list that holds, once closed, the seconds in which the GPU ran at least one kernel.

    Recording slows the host down, not the kernels; a pass that is watched is not timed.
    """
    import torch
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    found: list[float] = []
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        yield found
        torch.cuda.synchronize()
    spans = [
        (event.time_range.start, event.time_range.end)
        for event in recorded.events() or ()
        if event.device_type == DeviceType.CUDA
    ]
    found.append(covered(spans) / 1e6)


def covered(spans: Sequence[tuple[float, float]]) -> float:
    """Length of the union of spans.

    >>> covered([(0, 2), (5, 6), (1, 3)])
    4.0
    """
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
