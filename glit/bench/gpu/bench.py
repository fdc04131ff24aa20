"""What a part of the benchmark is given: a device, sizes, a folder, and a place for its figures."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from glit.bench.gpu.row import Row
from glit.bench.lism_flism.job import FULL, TINY, Sizes
from glit.bench.random_clip import ClipShape
from glit.recipes.config import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured."""

    sizes: Sizes
    """Of the models."""
    matrix_side: int
    copy_bytes: int
    num_flism: int
    """Images of FLISM's stages."""
    num_lism: int
    num_compared: int
    """Scenes on which the mini models are compared."""
    batch_size: int
    """Samples of a training step."""
    sample_px: tuple[int, int]
    """Width and height of the images that are trained on."""
    num_steps: int
    """Training steps timed."""
    captioner: dict[str, Any]
    """Arguments of ``LlavaNextConfig``."""
    captioned_px: tuple[int, int]
    num_captions: int
    caption_tokens: int
    repeats: int

    @property
    def clip(self) -> ClipShape:
        """CLIP's shape."""
        return self.sizes.clip


_LLAVA = {
    "text_config": {
        "model_type": "mistral",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 32768,
        "sliding_window": None,
        "vocab_size": 32064,
    },
    "vision_config": {
        "model_type": "clip_vision_model",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "image_size": 336,
        "patch_size": 14,
        "projection_dim": 768,
    },
    "image_grid_pinpoints": [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]],
    "vision_feature_layer": -2,
    "vision_feature_select_strategy": "default",
}
"""LLaVA-NeXT with Mistral 7B and CLIP ViT-L/14 at 336 pixels."""

_TINY_LLAVA = {
    "text_config": {
        "model_type": "mistral",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "sliding_window": None,
        "vocab_size": 512,
    },
    "vision_config": {
        "model_type": "clip_vision_model",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
        "projection_dim": 32,
    },
    "image_grid_pinpoints": [[28, 56], [56, 28], [56, 56]],
    "vision_feature_layer": -2,
    "vision_feature_select_strategy": "default",
}

SCALES: dict[str, Scale] = {
    "full": Scale(
        sizes=FULL,
        matrix_side=8192,
        copy_bytes=1 << 28,
        num_flism=64,
        num_lism=8,
        num_compared=8,
        batch_size=256,
        sample_px=(640, 480),
        num_steps=10,
        captioner=_LLAVA,
        captioned_px=(1024, 768),
        num_captions=32,
        caption_tokens=160,
        repeats=5,
    ),
    "tiny": Scale(
        sizes=TINY,
        matrix_side=64,
        copy_bytes=1 << 16,
        num_flism=2,
        num_lism=1,
        num_compared=1,
        batch_size=4,
        sample_px=(64, 48),
        num_steps=1,
        captioner=_TINY_LLAVA,
        captioned_px=(60, 40),
        num_captions=2,
        caption_tokens=3,
        repeats=1,
    ),
}
"""``tiny`` shows on any machine that all parts run."""


class Bench:
    """One part at work.

    Args:
        scale: how much is measured.
        device: ``cuda`` or ``cpu``.
        output: JSON file of the part; written anew after every figure.
        scratch: a folder for models and images, removed with the part.
        rates: of the matrix part, by precision, operations a second; empty where it failed.
    """

    def __init__(
        self, scale: Scale, device: Device, output: Path, scratch: Path, rates: dict[str, float]
    ) -> None:
        self.scale, self.scratch, self.rates = scale, scratch, rates
        self.device: Device = device
        self._output = output
        self._found: dict[str, Any] = {"rows": [], "notes": [], "details": {}}
        self._write()

    def report(self, what: str, measured: float, unit: str, **more: Any) -> None:
        """Add a figure; see :class:`glit.bench.gpu.row.Row`."""
        row = Row(what=what, measured=measured, unit=unit, **more)
        self._found["rows"].append(asdict(row))
        self._write()

    def note(self, text: str) -> None:
        """Add a sentence below the table."""
        self._found["notes"].append(text)
        self._write()

    def detail(self, name: str, value: Any) -> None:
        """Add something for the JSON file alone."""
        self._found["details"][name] = value
        self._write()

    def limit(self, operations: float, precision: str) -> float | None:
        """How often a second so many operations could be done at the measured matrix rate."""
        rate = self.rates.get(precision)
        return rate / operations if rate else None

    def finish(self) -> None:
        """Wait until the device has done all that it was given."""
        if self.device == "cuda":
            import torch

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

    def kernels(self, name: str, work: Callable[[], Any]) -> None:
        """Note the twenty operations that ``work`` spends most of the device's time in."""
        from torch.profiler import ProfilerActivity, profile

        cuda = self.device == "cuda"
        activity = ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU
        try:
            with profile(activities=[activity]) as recorded:
                work()
                self.finish()
        except (RuntimeError, AssertionError) as error:
            self.note(f"the profiler could not watch {name}: {error}")
            return
        spent = "self_device_time_total" if cuda else "self_cpu_time_total"
        events = sorted(recorded.key_averages(), key=lambda each: -getattr(each, spent))
        total = sum(getattr(each, spent) for each in events) or 1
        top = [
            {
                "kernel": each.key,
                "calls": each.count,
                "ms": getattr(each, spent) / 1e3,
                "share": getattr(each, spent) / total,
            }
            for each in events[:20]
        ]
        self.detail(f"kernels of {name}", top)

    def _write(self) -> None:
        part = self._output.with_suffix(".part")
        part.write_text(json.dumps(self._found, indent=1), encoding="utf-8")
        os.replace(part, self._output)
