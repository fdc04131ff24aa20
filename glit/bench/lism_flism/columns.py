"""The columns: the input of each, its process and its clock.

A column has a process of its own, so that memory, threads and allocator are its own.
"""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from glit.bench.harness import Row
from glit.bench.machine import Load, peak_mb
from glit.bench.scenes import Truth
from glit.data.records import Drop, Sample
from glit.images import Pixels
from glit.models.weights import Resolved
from glit.pipeline.planning.recipe import Recipe
from glit.stages.image_source import ImageSource
from glit.storage.store import Store

Method = Literal["lism", "flism"]

PARTS: tuple[str, ...] = ("wait", "propose", "encode", "match", "write")
"""Parts of a column's total; ``wait`` is decoding that nothing else overlapped."""
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
    """A way of making local pairs."""

    key: str
    title: str

    @property
    def method(self) -> Method:
        return "flism" if self.key.startswith("flism") else "lism"

    @property
    def in_glit(self) -> bool:
        """True if glit's stages do it; otherwise one image after the other, as the papers' do."""
        return not self.key.endswith("one")

    @property
    def has_8_bits(self) -> bool:
        """True if proposer and matcher run with ``precision = "int8"``, not with the recipe's."""
        return self.key.endswith("int8")


COLUMNS: tuple[Column, ...] = (
    Column(key="lism-one", title="LISM one at a time"),
    Column(key="lism-glit", title="LISM in glit"),
    Column(key="flism-one", title="FLISM one at a time"),
    Column(key="flism-glit", title="FLISM in glit"),
)
"""In the order of tables and of work."""
_IN_8_BITS = Column(key="flism-int8", title="FLISM in glit, 8 bits")


def columns_on(device: str) -> tuple[Column, ...]:
    """The columns that are measured on a device; 8 bits are for a CPU."""
    from glit.models.int8 import is_exact

    return (*COLUMNS, _IN_8_BITS) if device == "cpu" and is_exact() else COLUMNS


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchImages:
    """Images found or drawn; those of a pass have sentences."""

    store: Store
    samples: tuple[Sample, ...]
    """With captions."""
    what: str
    """In words, for the report."""
    notes: tuple[str, ...] = ()
    truth: tuple[Truth, ...] = ()
    """The truth of each sample, for scenes."""

    def captions(self) -> list[str]:
        """Captions of all samples that have one."""
        return [sample.caption.text for sample in self.samples if sample.caption]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnJob:
    """The inputs of a column's process."""

    column: Column
    recipe: Recipe
    """Its propose, score, pair and pack tables count."""
    proposer: Resolved
    matcher: Resolved
    device: str
    threads: int
    num_fixed: int | None
    """Regions handed on instead of the proposer's own; None takes what it proposes."""
    scratch: Path
    """The folder that the column writes in; removed with the run."""


class Way(ABC):
    """A way of working, its models loaded."""

    @abstractmethod
    def run(self, batch: BenchImages) -> Row:
        """Work on a batch: ``parts_s`` (seconds by :data:`PARTS` over all images), ``num_regions``
        (that competed, LISM's whole image not counted), ``num_dropped`` (images without regions),
        ``choices`` (of each image the chosen box of each sentence, or None)."""

    def perform(self, batch: BenchImages) -> Row:
        """Make one pass; return its row, with the memory and CPU seconds that it took."""
        import torch

        load = Load()
        found = self.run(batch)
        on_gpu = torch.cuda.is_initialized()
        return found | {
            "num_images": len(batch.samples),
            "cpu_s": load.cpu_s(),
            "others": load.others(),
            "peak_host_mb": peak_mb(),
            "peak_device_mb": torch.cuda.max_memory_allocated() / 2**20 if on_gpu else None,
        }


def total_s(row: Row) -> float:
    """Seconds of a pass."""
    return sum(row["parts_s"].values())


class PartClock:
    """Wall seconds by part; whatever lies between parts is not counted."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what happens inside for a part."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - started


class TimedSource(ImageSource):
    """An image source; the wait for its threads is a part of a clock."""

    def __init__(self, store: Store, clock: PartClock) -> None:
        super().__init__(store)
        self._clock = clock

    def each(self, samples: Sequence[Sample]) -> Iterator[Pixels | Drop]:
        images = super().each(samples)
        while True:
            with self._clock.part("wait"):
                image = next(images, None)
            if image is None:
                return
            yield image
