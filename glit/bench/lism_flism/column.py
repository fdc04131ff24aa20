"""What a column's process does: it has one, so that memory, threads and allocator are its own."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, Protocol

from glit.bench.lism_flism.clock import watched_kernels
from glit.bench.lism_flism.job import Batch, Facts, Job, Order, Pass, Result
from glit.bench.machine import peak_mb

PRELOADED = (
    "glit.bench.lism_flism.in_glit",
    "glit.bench.lism_flism.scripts",
    "segment_anything",
    "transformers.models.clip.modeling_clip",
    "transformers.models.yolos.modeling_yolos",
)
"""Modules that all columns need."""


class Way(Protocol):
    """A way of working, its models loaded."""

    def facts(self) -> Facts:
        """What it knows of its models."""
        ...

    def run(self, batch: Batch) -> Result:
        """Work on a batch."""
        ...


def column(job: Job) -> Generator[Any, Any, None]:
    """Load a column's models, yield, then yield an answer to every order.

    An order asks for a pass, or is the word ``"facts"``.
    """
    way = open_way(job)
    order = yield None
    while True:
        order = yield way.facts() if order == "facts" else perform(way, order)


def open_way(job: Job) -> Way:
    """Load a column's models."""
    if job.column.in_glit:
        from glit.bench.lism_flism.in_glit import InGlit

        return InGlit(job)
    from glit.bench.lism_flism.scripts import OneAtATime

    return OneAtATime(job)


def perform(way: Way, order: Order) -> Pass:
    """One pass, measured."""
    device_s = None
    cpu = time.process_time()
    if order.watch_device:
        with watched_kernels() as seconds:
            result = way.run(order.batch)
        device_s = seconds[0]
    else:
        result = way.run(order.batch)
    return Pass(
        result=result,
        num_images=len(order.batch.samples),
        cpu_s=time.process_time() - cpu,
        device_s=device_s,
        peak_host_mb=peak_mb(),
        peak_device_mb=_peak_device_mb(),
    )


def _peak_device_mb() -> float | None:
    import torch

    if not torch.cuda.is_initialized():
        return None
    return torch.cuda.max_memory_allocated() / 2**20
