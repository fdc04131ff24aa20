"""Tests see the same CPU on every machine, because they compare with results of a CPU.

With ``device = "auto"`` a GPU would be taken, and with it bfloat16. Only tests/gpu has the GPU.
Importing this before anything else takes GPUs away from the processes that tests start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch

from glit.models import device

_KEY = "CUDA_VISIBLE_DEVICES"
_BEFORE = os.environ.get(_KEY)
_ACCELERATORS = device.accelerators

torch.cuda.is_available()  # CUDA reads the variable once: this process keeps its GPUs, for tests/gpu
os.environ[_KEY] = ""


@contextmanager
def no_accelerators() -> Iterator[None]:
    """The best device is the CPU, whose processor has no instructions for bfloat16."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "accelerators", lambda: [])
        patch.setattr(torch.cpu, "get_capabilities", dict, raising=False)
        yield


@contextmanager
def processor(*, bfloat16: bool) -> Iterator[None]:
    """In the block something computes in bfloat16, on a processor with or without instructions for
    it; without them it must warn.
    """
    warned = pytest.warns(UserWarning, match="this processor has no instructions for it")
    with pytest.MonkeyPatch.context() as patch, nullcontext() if bfloat16 else warned:
        patch.setattr(
            torch.cpu, "get_capabilities", lambda: {"avx512_bf16": bfloat16}, raising=False
        )
        yield


@contextmanager
def as_it_is() -> Iterator[None]:
    """The machine's own devices again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "accelerators", _ACCELERATORS)
        patch.delenv(_KEY)
        if _BEFORE is not None:
            patch.setenv(_KEY, _BEFORE)
        yield
