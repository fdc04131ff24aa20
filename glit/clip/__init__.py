"""The CLIP model that training and evaluation share: text window, rows, pooling, preprocessing."""

from __future__ import annotations

from typing import Literal

ImageFit = Literal["resize", "centre-crop"]
"""How an image becomes the model's square: squeezed, or its middle cut out."""
