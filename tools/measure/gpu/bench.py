"""The input of a part of the benchmark (device, sizes, folder), and its figures."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from glit.bench.harness import Row, note
from glit.bench.lism_flism.columns import BenchImages
from glit.bench.lism_flism.inputs import scenes
from glit.bench.lism_flism.models import FULL, TINY, Sizes
from glit.errors import first_line
from glit.images import Pixels, decode
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
    """A figure.

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

    @property
    def is_full(self) -> bool:
        """False at the tiny scale, where one image and one batch are enough."""
        return self.scale is SCALES["full"]

    @property
    def compiler(self) -> str:
        """The backend of ``torch.compile``; on a CPU it only shows that the model can be traced."""
        return "inductor" if self.device == "cuda" else "eager"

    def scenes(self, number: int) -> BenchImages:
        """Drawn JPEG files of the scale's size, with captions."""
        return scenes(
            self.scratch / "scenes",
            num=number,
            side_px=self.scale.sizes.scene_px,
            image_format="jpeg",
        )

    def pixels(self, images: BenchImages) -> list[Pixels]:
        """The decoded images."""
        return [decode(images.store.read(sample.source_path)) for sample in images.samples]

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

    def tried(
        self,
        what: str,
        make: Callable[[], Any],
        work: Callable[[Any], Any],
        *,
        number: int,
        unit: str,
    ) -> Row:
        """Return how many items a second ``work(make())`` does; a note where that fails.

        For what a library may refuse on this machine, such as to compile a model: the rows behind
        it are measured all the same.
        """
        try:
            made = make()
            seconds = self.seconds(lambda: work(made))
        except Exception as error:  # noqa: BLE001 - the note has its first line, whatever it is
            return note(f"{what}: {type(error).__name__}: {first_line(error)}")
        return row(what, number / seconds, unit)
