"""The device and the dtype that a model runs on, from their names in a configuration."""

from __future__ import annotations

import importlib.util
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


def best_device() -> str:
    """The fastest device of this process: ``cuda``, Apple's ``mps``, else ``cpu``."""
    if importlib.util.find_spec("torch") is None:
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def pick_device(wanted: str) -> Any:
    """The ``torch.device`` of a name; ``auto`` is :func:`best_device`.

    Raises:
        UserError: this machine does not have the device.
    """
    torch = require_torch("a model backend")
    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if wanted == "auto":
        wanted = best_device()
    if not found.get(wanted, True):
        raise UserError(f"device = {wanted!r}: this machine has none; use device = 'auto' or 'cpu'")
    return torch.device(wanted)


def torch_dtype(precision: str) -> Any:
    """The torch dtype of a precision other than ``auto``: ``float32`` is ``torch.float32``."""
    return getattr(require_torch("a model backend"), precision)
