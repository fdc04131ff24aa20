"""``sentence-patches``: every sentence against its best place, beside the whole caption and image.

score(t, i) = (1 - w) mean_s max_p s . p + w t . i,   w = global_weight

The first term is the MaxSim of ColBERT (Khattab and Zaharia 2020, section 3.3), with sentences as
the query's vectors and the places of an image as the document's. A place is the mean of the patches
of a square of ``window`` x ``window``, as the objectives that train patches take the mean of those
under a region.

All places of the gallery are in memory: 1.5 GB for 5,000 images of ViT-B/16 (144 x 512 float32).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from glit.evaluation.collection import Collection, Text
from glit.evaluation.encode import Embedder
from glit.evaluation.scorers.protocol import Vectors
from glit.recipes.config import require_value

_AT_ONCE = 1 << 24
"""Cosines of sentences and places held at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentencePatches:
    """Late interaction of sentences and places; the first vector is the whole caption or image."""

    global_weight: float = 0.25
    """Share of the cosine of the whole image and the whole caption, 0 to 1; the rest is that of
    sentences and their best places."""
    window: int = 3
    """A place is the mean of so many patches each way."""

    def __post_init__(self) -> None:
        found = f"evaluate.global_weight = {self.global_weight}"
        require_value(0 <= self.global_weight <= 1, f"{found}: wanted 0 to 1")
        require_value(self.window >= 1, f"evaluate.window = {self.window}: wanted 1 or more")

    def images(self, embedder: Embedder, collection: Collection) -> Vectors:
        found = []
        for tokens, whole_ND in embedder.encoded_images(collection, embedder.wholes(collection)):
            with torch.inference_mode():
                place_NPD = self._places(embedder.encoder.project_patches(tokens))
            found.append(torch.cat([whole_ND[:, None], place_NPD], dim=1).cpu())
        vector_NVD = torch.cat(found)
        embedder.check(vector_NVD.flatten(1), [f"image {name}" for name in collection.names])
        return Vectors(
            vector_NVD=vector_NVD, valid_NV=torch.ones(vector_NVD.shape[:2], dtype=torch.bool)
        )

    def _places(self, patch_NPD: Float[Tensor, "n p d"]) -> Float[Tensor, "n q d"]:
        """Means over windows, L2-normalised; the whole image where it is smaller."""
        side = round(patch_NPD.shape[1] ** 0.5)
        grid_NDHW = patch_NPD.transpose(1, 2).unflatten(2, (side, side))
        mean_NDHW = F.avg_pool2d(grid_NDHW, min(self.window, side), stride=1)
        return F.normalize(mean_NDHW.flatten(2).transpose(1, 2), dim=-1)

    def texts(self, embedder: Embedder, texts: Sequence[Text]) -> Vectors:
        pieces = [(text.text, *text.pieces) for text in texts]
        embedding_SD = embedder.texts([piece for some in pieces for piece in some])
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
        place_NPD = images.vector_NVD[:, 1:]
        num_places = place_NPD.shape[1]
        at_once = max(1, _AT_ONCE // (num_places * max(1, len(sentence_MD))))
        blocks = [
            (sentence_MD @ some.flatten(0, 1).T).unflatten(1, (len(some), num_places)).amax(dim=2)
            for some in place_NPD.split(at_once)
        ]
        best_MI = torch.cat(blocks, dim=1)
        total_TI = torch.zeros_like(whole_TI).index_add(0, owner_M, best_MI)
        mean_TI = total_TI / valid_TS.sum(dim=1, keepdim=True)
        return (1 - self.global_weight) * mean_TI + self.global_weight * whole_TI
