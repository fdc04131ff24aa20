"""The CLIP model of training and evaluation: preprocessing, text window, rows, pooling."""

from __future__ import annotations

from typing import Literal

ImageFit = Literal["resize", "centre-crop"]
"""How an image is fitted into the model's square: squeezed, or its middle square cut out."""
