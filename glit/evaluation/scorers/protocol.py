"""The interface of a scorer: one or several vectors for an image or a text, and their score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from jaxtyping import Bool, Float
from torch import Tensor

from glit.evaluation.collection import Collection, Text
from glit.evaluation.encode import CollectionEmbedder

__all__ = ["Scorer", "Text", "Vectors"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectors:
    """N images or texts of at most V vectors each; ``vectors[2:5]`` are three of them."""

    vector_NVD: Float[Tensor, "n v d"]
    """L2-normalised."""
    valid_NV: Bool[Tensor, "n v"]
    """False for padding; every image or text has at least one."""

    def __len__(self) -> int:
        return len(self.valid_NV)

    def __getitem__(self, some: slice | list[int]) -> Vectors:
        return Vectors(vector_NVD=self.vector_NVD[some], valid_NV=self.valid_NV[some])


class Scorer(Protocol):
    """Compare images with texts in blocks; the whole score matrix is never in memory."""

    def images(self, embedder: CollectionEmbedder, collection: Collection) -> Vectors:
        """Every image of a collection."""
        ...

    def texts(self, embedder: CollectionEmbedder, texts: Sequence[Text]) -> Vectors:
        """Texts with their sentences."""
        ...

    def score(self, texts: Vectors, images: Vectors) -> Float[Tensor, "t i"]:
        """A block of scores, higher for a better fit."""
        ...
