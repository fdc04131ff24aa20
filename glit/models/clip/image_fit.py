"""Fit an image into the model's square. Loads no model library."""

from typing import Literal

ImageFit = Literal["resize", "centre-crop"]
"""The fit of an image into the model's square: squeezed, or its middle square cut out."""
