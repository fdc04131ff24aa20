"""``cosine``: the cosine of one vector per image and text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from glit.evaluation.collection import Collection, Text
from glit.evaluation.encode import CollectionEmbedder
from glit.evaluation.scorers.protocol import Vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class Cosine:
    """The cosine of the whole image and the whole caption."""

    def images(self, embedder: CollectionEmbedder, collection: Collection) -> Vectors:
        return single(embedder.images(collection, embedder.wholes(collection)))

    def texts(self, embedder: CollectionEmbedder, texts: Sequence[Text]) -> Vectors:
        return single(embedder.texts([text.text for text in texts]))

    def score(self, texts: Vectors, images: Vectors) -> Float[Tensor, "t i"]:
        return texts.vector_NVD[:, 0] @ images.vector_NVD[:, 0].T


def single(embedding_ND: Float[Tensor, "n d"]) -> Vectors:
    """Return one vector for each embedding."""
    return Vectors(
        vector_NVD=embedding_ND[:, None], valid_NV=torch.ones(len(embedding_ND), 1).bool()
    )
