"""Decoded images, and the errors of those that cannot be decoded."""

from __future__ import annotations

import numpy as np
from jaxtyping import UInt8

from glit.errors import GlitError

Pixels = UInt8[np.ndarray, "_height _width 3"]


class ImageError(GlitError):
    """An image cannot be used; ``reason`` is a code of ``records.REASONS``."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple:
        return type(self), (self.reason, str(self))
