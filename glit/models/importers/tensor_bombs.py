"""Refuse files of tensors that fill memory: archives that unpack to much more than they are, and
tensors of many more numbers than are stored."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_REPEATED = 1 << 20
"""Numbers that a tensor may have of fewer stored ones, as PyTorch's ``expand`` makes it."""


def check_stored(path: Path) -> None:
    """Refuse an archive of compressed parts, which PyTorch never writes: a small one fills memory.

    Raises:
        ValueError: it is one.
    """
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(each.file_size for each in archive.infolist())
    if unpacked > 2 * path.stat().st_size:
        raise ValueError(f"an archive that unpacks to {unpacked >> 20} MB")


def check_strides(value: Any) -> None:
    """Refuse tensors, in dictionaries, of many more numbers than are stored, as ``expand`` makes.

    Raises:
        ValueError: one is.
    """
    if isinstance(value, dict):
        for each in value.values():
            check_strides(each)
    elif isinstance(value, Tensor) and value.layout == torch.strided:
        stored = value.untyped_storage().nbytes() // value.element_size()
        if value.numel() > max(stored, _REPEATED):
            raise ValueError(f"a tensor of the shape {tuple(value.shape)} of {stored} numbers")
