"""``finelip``: FineLIP's score of condensed tokens, for runs of the objective ``finelip``.

score(t, i) = R(i, t)                                                   (FineLIP Eq. 1)
score(t, i) = (1 - w) R(i, t) / 2 + w v_cls . t_eos, w = global_weight  (the starred rows)

The paper does not say how its starred rows weigh the two. R is the sum of two mean cosines, so its
half is on the scale of the global cosine; 0.5 weighs them alike.

Vectors are kept on the model's device: 40 an image and 50 a text of ViT-B/16 with 248 tokens,
0.9 GB for 5,000 of both; cosines of tokens take 64 MB at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from glit.evaluation.collection import Collection, Text
from glit.evaluation.encode import CollectionEmbedder
from glit.evaluation.learned import learned_module
from glit.evaluation.scorers.protocol import Vectors
from glit.models.clip.late_interaction import late_interaction
from glit.plain import limited
from glit.recipes.config import RecipeTable
from glit.training.objectives.finelip import FineLipModule


@dataclass(frozen=True, slots=True, kw_only=True)
class FineLipScore(RecipeTable):
    """Late interaction of condensed patches and words, and the global cosine."""

    table: ClassVar[str] = "evaluate"

    global_weight: float = limited(0.0, least=0, most=1)
    """Share of the global cosine, 0 to 1. The paper's starred rows use a share that it does not
    state."""

    def images(self, embedder: CollectionEmbedder, collection: Collection) -> Vectors:
        tokens = learned_module(embedder, FineLipModule, scorer="finelip")[1].tokens
        found = []
        for patches, embedding in embedder.encoded_images(collection, embedder.wholes(collection)):
            with torch.inference_mode():
                found.append(tokens.of_images(embedder.encoder, patches, embedding))
        names = [f"image {name}" for name in collection.names]
        return _checked(embedder, found, list(range(len(names))), names)

    def texts(self, embedder: CollectionEmbedder, texts: Sequence[Text]) -> Vectors:
        tokens = learned_module(embedder, FineLipModule, scorer="finelip")[1].tokens
        order: list[int] = []
        found = []
        for group, rows, slots, embedding in embedder.encoded_texts([t.text for t in texts]):
            with torch.inference_mode():
                apart, own = rows.apart(slots, len(group))
                found.append(tokens.of_texts(embedder.encoder, apart, own, embedding))
            order += group
        return _checked(embedder, found, order, [f"the text {t.text[:60]!r}" for t in texts])

    def score(self, texts: Vectors, images: Vectors) -> Float[Tensor, "t i"]:
        fine_TI = late_interaction(
            images.vector_NVD, images.valid_NV, texts.vector_NVD, texts.valid_NV
        ).T
        if self.global_weight:
            coarse_TI = texts.vector_NVD[:, 0] @ images.vector_NVD[:, 0].T
            fine_TI = (1 - self.global_weight) / 2 * fine_TI + self.global_weight * coarse_TI
        return fine_TI.cpu()


def _checked(
    embedder: CollectionEmbedder,
    found: list[tuple[Tensor, Tensor]],
    order: list[int],
    names: list[str],
) -> Vectors:
    """All parts as one, in the order of ``names``; ``order`` are the numbers as they came."""
    vectors, valid = zip(*found, strict=True)
    back = torch.tensor(order, device=embedder.device).argsort()
    vector_NVD = torch.cat(vectors)[back]
    embedder.check(vector_NVD.flatten(1), names)
    return Vectors(vector_NVD=vector_NVD, valid_NV=torch.cat(valid)[back])
