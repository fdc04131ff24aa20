"""``sentence-patches``: cosines of sentences with patches, and of the whole caption and image.

score(t, i) = (1 - w) mean_s max_p s . p + w t . i,   w = global_weight

The first term is the MaxSim of ColBERT (Khattab and Zaharia 2020, section 3.3). Its query vectors
are the embeddings of a caption's sentences. Its document vectors are means of ``window`` x
``window`` neighbouring patch embeddings, since ``glit``, ``fast-goal`` and ``fg-clip`` train means
of the patches under a region.

All windows of the gallery are in memory: 1.5 GB for 5,000 images of ViT-B/16 (144 x 512 float32).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from glit.evaluation.collection import Collection, Text
from glit.evaluation.encode import CollectionEmbedder
from glit.evaluation.scorers.protocol import Vectors
from glit.plain import limited
from glit.recipes.config import RecipeTable

_AT_ONCE = 1 << 24
"""Cosines of sentences and windows held at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentencePatches(RecipeTable):
    """Late interaction of sentences and windows of patches. The first vector of a text or image is
    its global embedding."""

    table: ClassVar[str] = "evaluate"

    global_weight: float = limited(0.25, least=0, most=1)
    """Weight of the cosine of the whole caption and the whole image, 0 to 1; the cosines of
    sentences and patches have the rest."""
    window: int = limited(3, least=1)
    """Side, in patches, of the squares whose patch embeddings are averaged; 1 compares with single
    patches. At most the side of the model's grid."""

    def images(self, embedder: CollectionEmbedder, collection: Collection) -> Vectors:
        found = []
        for tokens, whole_ND in embedder.encoded_images(collection, embedder.wholes(collection)):
            with torch.inference_mode():
                window_NWD = self._windows(embedder.encoder.project_patches(tokens))
            found.append(torch.cat([whole_ND[:, None], window_NWD], dim=1).cpu())
        vector_NVD = torch.cat(found)
        embedder.check(vector_NVD.flatten(1), [f"image {name}" for name in collection.names])
        return Vectors(
            vector_NVD=vector_NVD, valid_NV=torch.ones(vector_NVD.shape[:2], dtype=torch.bool)
        )

    def _windows(self, patch_NPD: Float[Tensor, "n p d"]) -> Float[Tensor, "n w d"]:
        """Mean patch embedding of every window, L2-normalised; of one, where the grid is smaller
        than a window."""
        side = round(patch_NPD.shape[1] ** 0.5)
        grid_NDHW = patch_NPD.transpose(1, 2).unflatten(2, (side, side))
        mean_NDHW = F.avg_pool2d(grid_NDHW, min(self.window, side), stride=1)
        return F.normalize(mean_NDHW.flatten(2).transpose(1, 2), dim=-1)

    def texts(self, embedder: CollectionEmbedder, texts: Sequence[Text]) -> Vectors:
        pieces = [(text.text, *text.pieces) for text in texts]
        distinct = {piece: row for row, piece in enumerate(dict.fromkeys(chain(*pieces)))}
        rows = [distinct[piece] for piece in chain(*pieces)]
        embedding_SD = embedder.texts(list(distinct))[rows]
        longest = max(map(len, pieces))
        vectors = torch.zeros(len(texts), longest, embedding_SD.shape[1])
        valid = torch.zeros(len(texts), longest, dtype=torch.bool)
        for number, part in enumerate(embedding_SD.split([len(some) for some in pieces])):
            vectors[number, : len(part)] = part
            valid[number, : len(part)] = True
        return Vectors(vector_NVD=vectors, valid_NV=valid)

    def score(self, texts: Vectors, images: Vectors) -> Float[Tensor, "t i"]:
        whole_TI = texts.vector_NVD[:, 0] @ images.vector_NVD[:, 0].T
        valid_TS = texts.valid_NV[:, 1:]
        sentence_MD, owner_M = texts.vector_NVD[:, 1:][valid_TS], valid_TS.nonzero()[:, 0]
        window_IWD = images.vector_NVD[:, 1:]
        num_windows = window_IWD.shape[1]
        at_once = max(1, _AT_ONCE // (num_windows * max(1, len(sentence_MD))))
        blocks = [
            (sentence_MD @ some.flatten(0, 1).T).unflatten(1, (len(some), num_windows)).amax(dim=2)
            for some in window_IWD.split(at_once)
        ]
        best_MI = torch.cat(blocks, dim=1)
        total_TI = torch.zeros_like(whole_TI).index_add(0, owner_M, best_MI)
        mean_TI = total_TI / valid_TS.sum(dim=1, keepdim=True)
        return (1 - self.global_weight) * mean_TI + self.global_weight * whole_TI
