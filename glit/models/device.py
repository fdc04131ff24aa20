"""Resolve the device and dtype names of a configuration."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import warnings
from typing import Any

from glit.errors import UserError
from glit.recipes.extras import require

_OTHERS = "/dev/kfd", "/dev/dxg"
"""Devices through which ROCm reaches GPUs, on Linux and in WSL."""


def best_device() -> str:
    """The fastest device of this process: ``cuda``, Apple's ``mps``, else ``cpu``."""
    return next(iter(accelerators()), "cpu")


def accelerators() -> list[str]:
    """The accelerators of this process, fastest first."""
    if importlib.util.find_spec("torch") is None or not _may_have_gpu():
        return []
    import torch

    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    return [name for name, here in found.items() if here]


def _may_have_gpu() -> bool:
    """Return False if torch cannot find a GPU here; found out without importing it, which takes
    longer than a small build."""
    if "torch" in sys.modules or not sys.platform.startswith("linux"):
        return True
    if any(map(os.path.exists, _OTHERS)):
        return True
    try:
        ctypes.CDLL("libcuda.so.1")  # as torch loads it: of NVIDIA's driver, also in WSL
    except OSError:
        return False
    return True


def pick_device(wanted: str) -> Any:
    """The ``torch.device`` of a name; ``auto`` is :func:`best_device`.

    Raises:
        UserError: this machine does not have the device.
    """
    require("models", needed_for="a model backend")
    import torch

    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if wanted == "auto":
        wanted = best_device()
    if not found.get(wanted, True):
        raise UserError(f"device = {wanted!r}: this machine has none; use device = 'auto' or 'cpu'")
    return torch.device(wanted)


def has_bfloat16(device: str) -> bool:
    """Return whether a device has native bfloat16 matrix multiplication.

    Without them a processor converts every number on the way: a step of ours took fifteen times as
    long as in float32.
    """
    import torch

    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device != "cpu":
        return False
    known = getattr(torch.cpu, "get_capabilities", dict)()  # newer than the oldest torch we take
    return any(known.get(name) for name in ("amx_bf16", "avx512_bf16", "bf16", "sve_bf16"))


def lacks_bfloat16(device: str) -> bool:
    """Return whether this process has a GPU of this kind, and it only emulates bfloat16."""
    return device == "cuda" and device in accelerators() and not has_bfloat16(device)


def warn_if_slow(precision: str, device: str, *, where: str) -> None:
    """Warn if bfloat16 was requested and the CPU only emulates it.

    Args:
        precision: ``float32``, ``bfloat16`` or ``float16``; ``no``, ``bf16`` or ``fp16``.
        device: ``cpu``, ``cuda`` or ``mps``.
        where: the key of the recipe.
    """
    if device == "cpu" and precision in ("bfloat16", "bf16") and not has_bfloat16(device):
        warnings.warn(
            f"{where} = {precision!r}: this processor has no instructions for it; "
            "'auto' is faster, up to fifteen times",
            stacklevel=2,
        )


def torch_dtype(precision: str) -> Any:
    """The torch dtype of a model's weights at a precision other than ``auto``; with ``int8`` they
    are float32 until :func:`glit.models.int8.use_int8` changes layers."""
    import torch

    return torch.float32 if precision == "int8" else getattr(torch, precision)


def gpu_memory() -> tuple[int, int] | None:
    """Used and total bytes of this process's GPU; None if it uses none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    free, total = torch.cuda.mem_get_info()
    return total - free, total


def gpu_name() -> str:
    """Name of this process's GPU, such as ``NVIDIA H100 80GB HBM3``; empty if it uses none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return ""
    return torch.cuda.get_device_name()
