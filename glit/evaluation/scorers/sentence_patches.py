"""``sentence-patches``: every sentence against its best patch.

score(t, i) = mean_s max_p s . p   (the MaxSim of ColBERT, Khattab and Zaharia 2020, section 3.3,
with sentences as the query's vectors and an image's patches as the document's)

All patches of the gallery are in memory: 2 GB for 5,000 images of ViT-B/16 (196 x 512 float32).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from glit.evaluation.collection import Collection, Text
from glit.evaluation.encode import Embedder
from glit.evaluation.scorers.protocol import Vectors

_AT_ONCE = 1 << 24
"""Cosines of sentences and patches held at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentencePatches:
    """Late interaction of sentences and patches."""

    def images(self, embedder: Embedder, collection: Collection) -> Vectors:
        numbers = range(len(collection.captions))
        patch_NPD = torch.cat(list(embedder.patches(collection, numbers)))
        return Vectors(
            vector_NVD=patch_NPD, valid_NV=torch.ones(patch_NPD.shape[:2], dtype=torch.bool)
        )

    def texts(self, embedder: Embedder, texts: Sequence[Text]) -> Vectors:
        pieces = [text.pieces for text in texts]
        embedding_SD = embedder.texts([piece for some in pieces for piece in some])
        longest = max(map(len, pieces))
        vectors = torch.zeros(len(texts), longest, embedding_SD.shape[1])
        valid = torch.zeros(len(texts), longest, dtype=torch.bool)
        for number, part in enumerate(embedding_SD.split([len(some) for some in pieces])):
            vectors[number, : len(part)] = part
            valid[number, : len(part)] = True
        return Vectors(vector_NVD=vectors, valid_NV=valid)

    def score(self, texts: Vectors, images: Vectors) -> Float[Tensor, "t i"]:
        sentence_MD, owner_M = texts.vector_NVD[texts.valid_NV], texts.valid_NV.nonzero()[:, 0]
        num_patches = images.vector_NVD.shape[1]
        at_once = max(1, _AT_ONCE // (num_patches * max(1, len(sentence_MD))))
        blocks = [
            (sentence_MD @ some.flatten(0, 1).T).unflatten(1, (len(some), num_patches)).amax(dim=2)
            for some in images.vector_NVD.split(at_once)
        ]
        best_MI = torch.cat(blocks, dim=1)
        total_TI = torch.zeros(len(texts), best_MI.shape[1]).index_add(0, owner_M, best_MI)
        return total_TI / texts.valid_NV.sum(dim=1, keepdim=True)
