"""The figures that a measurement returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Metrics = dict[str, float]
"""Shares between 0 and 1 under CLIP_benchmark's names: ``image_retrieval`` finds the image of a
text, ``text_retrieval`` the text of an image."""

ROUNDING = 1e-6
"""Scores closer to each other than this are equal. Equal texts have equal embeddings, but the order
of additions in a product depends on its shape."""

WAYS = ("image_retrieval", "text_retrieval")
"""The two directions of retrieval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A task's result, if that is more than figures."""

    metrics: Metrics
    neighbours: dict[str, Any] = field(default_factory=dict)
    """Examples of right and of wrong queries, by direction of retrieval."""
    broken: tuple[str, ...] = ()
    """Images that were left out because they cannot be read."""
