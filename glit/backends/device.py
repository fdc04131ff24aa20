"""Which device and which precision a model runs on."""

from __future__ import annotations

from typing import Any

from glit.errors import MissingExtraError, UserError


def require_torch(needed_for: str) -> Any:
    """The torch module.

    Raises:
        MissingExtraError: torch is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("torch", extra="models", needed_for=needed_for) from error
    return torch


def pick_device(wanted: str) -> Any:
    """``auto`` is CUDA, then Apple's GPU, then the CPU.

    Raises:
        UserError: the wanted device is not here.
    """
    torch = require_torch("a model backend")
    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if wanted == "auto":
        wanted = next((name for name, here in found.items() if here), "cpu")
    if not found.get(wanted, True):
        raise UserError(f"device = {wanted!r}: this machine has none; use device = 'auto' or 'cpu'")
    return torch.device(wanted)


def pick_dtype(wanted: str, device: Any) -> Any:
    """``auto`` is bfloat16 on CUDA and float32 elsewhere."""
    torch = require_torch("a model backend")
    if wanted == "auto":
        wanted = "bfloat16" if device.type == "cuda" else "float32"
    return getattr(torch, wanted)
