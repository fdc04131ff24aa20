"""``localize``: whether a sentence's best patches are in its region (FAST-GOAL Table XVI)."""

from __future__ import annotations

import numpy as np
import torch

from glit.evaluation.collection import Collection, need_pairs
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import CollectionEmbedder
from glit.evaluation.localisation import centre_inside, chance, first_hit
from glit.evaluation.metrics import Metrics


def localize(
    embedder: CollectionEmbedder, collection: Collection, config: EvaluateConfig
) -> Metrics:
    """Measure whether one of the K patches most similar to a sentence is in its region (Table XVI).

    ``chance@K`` is what patches picked at random would score on the same regions.
    """
    need_pairs(collection, "localize")
    count = 1 if config.localize_pairs == "best" else None
    with_pairs = [i for i in range(len(collection.captions)) if collection.pairs(i)]
    pairs_of = {i: collection.pairs(i)[:count] for i in with_pairs}
    text_MD = embedder.texts([pair.sentence for i in with_pairs for pair in pairs_of[i]])
    ranks: list[np.ndarray] = []
    inside: list[np.ndarray] = []
    used = 0
    step = embedder.batch_size
    patches = embedder.patches(collection, with_pairs)
    for low in range(0, len(with_pairs), step):
        batch = with_pairs[low : low + step]
        patch_BPD = next(patches)
        owner = [n for n, i in enumerate(batch) for _ in pairs_of[i]]
        boxes = [embedder.box(collection, i, pair.box_xyxy) for i in batch for pair in pairs_of[i]]
        inside_MP = centre_inside(
            torch.from_numpy(np.stack(boxes)).float(),
            patch_size=embedder.encoder.patch_size,
            grid=embedder.encoder.grid,
        )
        ranks.append(first_hit(patch_BPD[owner], text_MD[used : used + len(owner)], inside_MP))
        inside.append(inside_MP.sum(dim=1).numpy())
        used += len(owner)
    rank_M = np.concatenate(ranks)
    floor = chance(
        np.concatenate(inside), num_patches=embedder.encoder.grid**2, ks=config.localize_at
    )
    return {
        **{f"localisation@{k}": float((rank_M < k).mean()) for k in config.localize_at},
        **{f"chance@{k}": value for k, value in floor.items()},
        "pairs": float(len(rank_M)),
    }
