"""What a backend says of itself before it is made, and what every backend with a model is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from glit.backends.device import best_device
from glit.backends.weights import Resolved
from glit.config import Device, Precision, speed_only

ConfigT = TypeVar("ConfigT", bound="ModelConfig")
Reads = Literal["pixels", "file", "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """What every backend with a model is told; the tables of stages build on it."""

    model: str
    """Name in manifests/weights.toml, a hub id, a folder or a file."""
    revision: str = "main"
    """Hub revision of the model."""
    device: Device = speed_only("auto")
    """``auto`` takes a GPU when there is one."""
    precision: Precision = "auto"
    """``auto`` is float32 on a CPU and bfloat16 on a GPU; SAM and YOLO: float32 everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A backend as its stage and the plan of a build see it. Stands beside the class it makes."""

    make: Callable[..., Any]
    """Makes it in the worker; its arguments are those of the stage's other backends."""
    reads: Reads = "pixels"
    """What it is given of a sample: decoded pixels, a text file beside the image, or no more than
    the record itself."""
    beside: str = ""
    """Suffix of that file: ``.txt`` is read from NAME.txt beside NAME.jpg."""
    measures_area: bool = False
    """Proposers: whether it keeps to ``min_area`` and ``max_area`` itself, by masks; boxes are
    then not measured again."""
    needs_model: bool = True
    """Whether ``config.model`` names weights that it loads."""
    auto_precision: Mapping[str, Precision] = field(default_factory=lambda: {"cuda": "bfloat16"})
    """What ``precision = "auto"`` means, by device; float32 where nothing is said."""
    process_bytes: int = 1_200_000_000
    """Memory of a worker beside three times its weights: libraries, and what it works on."""
    keeps_process: bool = True
    """Whether its process is fit for other work afterwards; an engine may not let go."""
    check: Callable[[Any, Resolved | None], None] | None = None
    """Refuses settings or weights it cannot run with, before the first image is read.
    Takes the configuration and the resolved model; raises a UserError."""
    options: type | None = None
    """A frozen dataclass of keys of its own, beside those of the stage's table; the instance
    reaches it as ``config.options``."""

    def settled(self, config: ConfigT, device: str = "") -> ConfigT:
        """The configuration with ``auto`` decided.

        Args:
            config: a :class:`ModelConfig`.
            device: what ``device = "auto"`` means; empty takes the best one of this process.
        """
        device = config.device if config.device != "auto" else device or best_device()
        precision = config.precision
        if not self.needs_model:
            precision = "float32"  # nothing is computed, so nothing depends on the machine
        elif precision == "auto":
            precision = self.auto_precision.get(device, "float32")
        return dataclasses.replace(config, device=device, precision=precision)


PLAIN_BYTES = 400_000_000
"""Memory of a worker that loads no model library."""
