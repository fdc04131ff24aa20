"""``sentence-average``: every sentence embedded by itself, then averaged (FAST-GOAL Table XV)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from glit.evaluation.collection import Text
from glit.evaluation.encode import CollectionEmbedder
from glit.evaluation.scorers.cosine import Cosine, single
from glit.evaluation.scorers.protocol import Vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceAverage(Cosine):
    """The cosine of the whole image and the mean of the sentences."""

    def texts(self, embedder: CollectionEmbedder, texts: Sequence[Text]) -> Vectors:
        pieces = [text.pieces for text in texts]
        embedding_SD = embedder.texts([piece for some in pieces for piece in some])
        means = [part.mean(dim=0) for part in embedding_SD.split([len(some) for some in pieces])]
        return single(F.normalize(torch.stack(means), dim=-1))
