"""The four columns: what each is told, what its process does, and its clocks.

A column has a process of its own, so that memory, threads and allocator are its own.
"""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from glit.backends.weights import Resolved
from glit.bench.harness import Row
from glit.bench.machine import peak_mb
from glit.bench.scenes import Truth
from glit.data.records import Drop, Sample
from glit.images import Pixels, decode
from glit.stages.image_source import ImageSource
from glit.stages.recipe import Recipe
from glit.storage.store import Store

Method = Literal["lism", "flism"]

PARTS: tuple[str, ...] = ("wait", "propose", "encode", "match", "write")
"""What a column's total is made of; ``wait`` is decoding that nothing else overlapped."""
CROP = "CLIP, a crop"
"""Name of a crop's operations among those of a column."""

PRELOADED = (
    "glit.bench.lism_flism.in_glit",
    "glit.bench.lism_flism.scripts",
    "segment_anything",
    "transformers.models.clip.modeling_clip",
    "transformers.models.yolos.modeling_yolos",
)
"""Modules that all columns need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One way of making local pairs."""

    key: str
    title: str

    @property
    def method(self) -> Method:
        return "flism" if self.key.startswith("flism") else "lism"

    @property
    def in_glit(self) -> bool:
        """Whether glit's stages do it; otherwise one image after the other, as the papers' do."""
        return self.key.endswith("glit")


COLUMNS: tuple[Column, ...] = (
    Column(key="lism-one", title="LISM one at a time"),
    Column(key="lism-glit", title="LISM in glit"),
    Column(key="flism-one", title="FLISM one at a time"),
    Column(key="flism-glit", title="FLISM in glit"),
)
"""In the order of tables and of work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """Images found or drawn; those of a pass have sentences."""

    store: Store
    samples: tuple[Sample, ...]
    """With captions."""
    what: str
    """In words, for the report."""
    notes: tuple[str, ...] = ()
    truth: tuple[Truth, ...] = ()
    """One a sample, for scenes."""

    def captions(self) -> list[str]:
        """Of all samples."""
        return [sample.caption.text for sample in self.samples if sample.caption]

    def pixels(self) -> list[Pixels]:
        """Every image, decoded."""
        return [decode(self.store.read(sample.source_path)) for sample in self.samples]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a column's process needs."""

    column: Column
    recipe: Recipe
    """Its propose, score, pair and pack tables count."""
    proposer: Resolved
    matcher: Resolved
    batch: Images
    device: str
    threads: int
    num_fixed: int | None
    """Regions handed on instead of the proposer's own; None takes what it proposes."""
    matrix_side: int
    scratch: Path
    """Where the column writes; removed with the run."""


class Way(ABC):
    """A way of working, its models loaded."""

    @abstractmethod
    def facts(self) -> Row:
        """What it knows of its models, each way its own half: ``parameters`` of ``proposer`` and
        ``clip``, ``operations`` (an image of each part of the proposer, and of a :data:`CROP`),
        ``rates`` (what the device reaches in the precision of each of these parts)."""

    @abstractmethod
    def run(self, batch: Images) -> Row:
        """Work on a batch: ``parts_s`` (seconds by :data:`PARTS` over all images), ``decode_s``
        (decoders at work, which may overlap), ``num_proposed`` (by the proposer itself),
        ``num_regions`` (that competed, LISM's whole image not counted), ``num_dropped`` (images
        without regions), ``choices`` (of each image the chosen box of each sentence, or None)."""

    def perform(self, batch: Images, watch_device: bool = False) -> Row:
        """One pass, and what it took of the machine.

        Args:
            batch: to work on.
            watch_device: record the kernels of the GPU; such a pass is not timed.
        """
        import torch

        cpu = time.process_time()
        with watched_kernels() if watch_device else contextlib.nullcontext([]) as kernels_s:
            found = self.run(batch)
        on_gpu = torch.cuda.is_initialized()
        return found | {
            "num_images": len(batch.samples),
            "cpu_s": time.process_time() - cpu,
            "device_s": kernels_s[0] if kernels_s else None,
            "peak_host_mb": peak_mb(),
            "peak_device_mb": torch.cuda.max_memory_allocated() / 2**20 if on_gpu else None,
        }


def open_way(job: Job) -> Way:
    """Load the models of a column, in the column's own process."""
    if job.column.in_glit:
        from glit.bench.lism_flism.in_glit import InGlit as kind
    else:
        from glit.bench.lism_flism.scripts import OneAtATime as kind
    return kind(job)


def total_s(row: Row) -> float:
    """Seconds of a pass."""
    return sum(row["parts_s"].values())


class PartClock:
    """Wall seconds by part, added over threads; whatever lies between parts is not counted."""

    def __init__(self, parts: Sequence[str]) -> None:
        self.seconds = dict.fromkeys(parts, 0.0)
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what happens inside for a part."""
        started = time.perf_counter()
        try:
            yield
        finally:
            with self._lock:
                self.seconds[name] += time.perf_counter() - started


class TimedSource(ImageSource):
    """An image source whose threads' decoding and the wait for them are parts of a clock."""

    def __init__(self, store: Store, clock: PartClock) -> None:
        super().__init__(store)
        self._clock = clock

    def load(self, sample: Sample) -> Pixels | Drop:
        with self._clock.part("decode"):
            return super().load(sample)

    def each(self, samples: Sequence[Sample]) -> Iterator[Pixels | Drop]:
        images = super().each(samples)
        while True:
            with self._clock.part("wait"):
                image = next(images, None)
            if image is None:
                return
            yield image


@contextlib.contextmanager
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
