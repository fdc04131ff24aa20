"""Tests see a CPU on every machine, because they compare with results of a CPU.

With ``device = "auto"`` a GPU would be taken, and with it bfloat16. Only tests/gpu has the GPU.
Importing this before anything else takes GPUs away from the processes that tests start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from glit.backends import device

_KEYS = ("CUDA_VISIBLE_DEVICES", "ACCELERATE_USE_CPU")
_BEFORE = {key: os.environ.get(key) for key in _KEYS}
_ACCELERATORS = device.accelerators

torch.cuda.is_available()  # CUDA reads the variable once: this process keeps its GPUs, for tests/gpu
os.environ.update(CUDA_VISIBLE_DEVICES="", ACCELERATE_USE_CPU="true")


@contextmanager
def no_accelerators() -> Iterator[None]:
    """The best device is the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "accelerators", lambda: [])
        yield


@contextmanager
def as_it_is() -> Iterator[None]:
    """The machine's own devices again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "accelerators", _ACCELERATORS)
        for key, value in _BEFORE.items():
            patch.delenv(key, raising=False)
            if value is not None:
                patch.setenv(key, value)
        yield
