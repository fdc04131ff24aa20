"""``hierarchy``: whether an image is more similar to a caption with every sentence that is added.

HiMo@K (Wu et al., HiMo-CLIP, AAAI 2026): Pearson's correlation of 1 to K with the cosines of an
image and its caption's first one to K sentences, a mean over images. Recall by the first sentences
says the same of retrieval.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float

from glit.errors import InputError
from glit.evaluation.collection import Collection, GrowingCollection
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import CollectionEmbedder
from glit.evaluation.metrics import ROUNDING, Metrics

_MOST_RECALLS = 5


def hierarchy(
    embedder: CollectionEmbedder, collection: Collection, config: EvaluateConfig
) -> Metrics:
    """``himo`` over all sentences of each caption; for k = 1 to 5 ``first_k_recall@1``, the share
    of images that come first, among all, for their caption's first k sentences (all of a shorter
    one); of images whose sentences are equal, each is right for the others.

    Raises:
        InputError: no caption has two sentences.
    """
    prefixes = [_prefixes(collection, i) for i in range(len(collection.captions))]
    longest = max(map(len, prefixes))
    if longest < 2:
        raise InputError(f"{collection.name}: no caption has two sentences, so none grows")
    texts = [text for some in prefixes for text in some]
    image_ND = embedder.images(collection, embedder.wholes(collection))
    text_of = torch.split(embedder.texts(texts), [len(some) for some in prefixes])
    growth = [
        correlation((text_KD @ image_D).double().numpy())
        for text_KD, image_D in zip(text_of, image_ND, strict=True)
        if len(text_KD) > 1
    ]
    found: Metrics = {"himo": float(np.mean(growth))}
    for number in range(1, min(longest, _MOST_RECALLS) + 1):
        text_ND = torch.stack([text_KD[:number][-1] for text_KD in text_of])
        hits = [(some @ image_ND.T).argmax(dim=1) for some in text_ND.split(config.chunk_size)]
        told = [some[:number][-1] for some in prefixes]
        first = {text: index for index, text in reversed(list(enumerate(told)))}
        same_N = torch.tensor([first[text] for text in told])
        right_N = same_N[torch.cat(hits)] == same_N
        found[f"first_{number}_recall@1"] = float(right_N.double().mean())
    return found | {"captions": float(len(growth))}


def correlation(cosine_K: Float[np.ndarray, " k"]) -> float:
    """Pearson's, of the cosines with 1 to K; 0 where all cosines are equal.

    >>> correlation(np.array([0.1, 0.2, 0.3]))
    1.0
    """
    place_K = np.arange(len(cosine_K)) - (len(cosine_K) - 1) / 2
    apart_K = cosine_K - cosine_K.mean()
    size = float(np.sqrt((place_K**2).sum() * (apart_K**2).sum()))
    if np.ptp(cosine_K) < ROUNDING:
        return 0.0
    return float(round((place_K * apart_K).sum() / size, 12))


def _prefixes(collection: Collection, index: int) -> list[str]:
    """The first one to all sentences of an image's first caption."""
    captions = list(collection.captions[index])
    if isinstance(collection, GrowingCollection):
        return captions
    spans = collection.sentences(index)[0]
    return [captions[0][:end] for _, end in spans] or captions[:1]
