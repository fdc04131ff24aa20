"""The device and the dtype that a model runs on, from their names in a configuration."""

from __future__ import annotations

import importlib.util
from typing import Any

from glit.errors import UserError
from glit.extras import require


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
    require("models", needed_for="a model backend")
    import torch

    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if wanted == "auto":
        wanted = best_device()
    if not found.get(wanted, True):
        raise UserError(f"device = {wanted!r}: this machine has none; use device = 'auto' or 'cpu'")
    return torch.device(wanted)


def torch_dtype(precision: str) -> Any:
    """The torch dtype of a precision other than ``auto``: ``float32`` is ``torch.float32``."""
    import torch

    return getattr(torch, precision)
