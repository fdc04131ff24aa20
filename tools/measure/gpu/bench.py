"""The input of a part of the benchmark (device, sizes, folder), and its figures."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from glit.bench.harness import Row
from glit.bench.lism_flism.models import FULL, TINY, Sizes
from glit.recipes.config import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The sizes and numbers of what is measured."""

    sizes: Sizes
    """Sizes of the models."""
    matrix_side: int
    batch_size: int
    """Samples of a training step."""
    sample_px: int
    """Side of the images that are trained on."""
    repeats: int
    """Runs, and epochs, that are timed."""


SCALES: dict[str, Scale] = {
    "full": Scale(sizes=FULL, matrix_side=8192, batch_size=256, sample_px=512, repeats=5),
    "tiny": Scale(sizes=TINY, matrix_side=64, batch_size=4, sample_px=64, repeats=1),
}
"""``tiny`` shows on any machine that all parts run."""


def row(
    what: str, measured: float, unit: str, *, limit: float | None = None, bottleneck: str = ""
) -> Row:
    """A figure; larger is better, whatever its unit.

    Args:
        what: in words.
        measured: its value.
        unit: of the value and the limit.
        limit: what the machine would give by its measured rates or its data sheet; None where
            nothing is counted.
        bottleneck: what it waits for first.
    """
    return {
        "what": what, "measured": measured, "unit": unit, "limit": limit, "bottleneck": bottleneck,
    }  # fmt: skip


@contextlib.contextmanager
def products_in(precision: str) -> Iterator[None]:
    """Compute float32 products on a GPU in TF32 if ``precision`` is ``tf32``, else in float32."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The inputs of a part of the benchmark."""

    scale: Scale
    device: Device
    """``cuda`` or ``cpu``."""
    scratch: Path
    """A folder for models and images, removed with the part."""
    rates: dict[str, float] = field(default_factory=dict)
    """Matrix rates measured so far."""

    def rate(self, precision: str) -> float:
        """Operations a second of a large matrix product; measured once.

        Args:
            precision: a torch type's name, or ``tf32``.
        """
        if precision not in self.rates:
            side, kind = self.scale.matrix_side, getattr(torch, precision, torch.float32)
            a = torch.randn(side, side, device=self.device).to(kind)
            with products_in(precision):
                self.rates[precision] = 2 * side**3 / self.seconds(lambda: a @ a)
        return self.rates[precision]

    def finish(self) -> None:
        """Wait until the device has done all that it was given."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def seconds(self, work: Callable[[], Any], *, repeats: int | None = None) -> float:
        """The shortest of some runs of ``work``, after one that warms up, until the device is
        done."""
        work()
        self.finish()
        times = []
        for _ in range(repeats or self.scale.repeats):
            started = time.perf_counter()
            work()
            self.finish()
            times.append(time.perf_counter() - started)
        return min(times)

    def figure(
        self,
        what: str,
        work: Callable[[], Any],
        *,
        number: int,
        unit: str,
        precision: str,
        bottleneck: str,
        repeats: int | None = None,
    ) -> Row:
        """Return how many items a second ``work`` does, against the measured matrix rate.

        torch's profiler counts the operations of matrix products and convolutions in a run of its
        own; fused attention and all other work are left out and take additional time.

        Args:
            what: in words.
            work: done several times.
            number: of items that it does.
            unit: of the rate, such as ``images/s``.
            precision: of its products, as for :meth:`rate`.
            bottleneck: what it waits for first.
            repeats: timed runs; None takes the scale's.
        """
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU], with_flops=True) as recorded:
            work()
        operations = sum(each.flops or 0 for each in recorded.key_averages())
        limit = number * self.rate(precision) / operations if operations else None
        measured = number / self.seconds(work, repeats=repeats)
        return row(what, measured, unit, limit=limit, bottleneck=bottleneck)
