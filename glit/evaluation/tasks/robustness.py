"""``robustness``: retrieval with a false sentence in every caption (FAST-GOAL Table XVII).

The sentence goes in before the one in the caption's middle and all true ones stay, as in the
paper's section D (its sentences, by LLaVA-NeXT, speak of things that are not in the image). What
is measured is how much of retrieval that costs:

drop = mean over both directions of (R@1 of the clean captions - R@1 of the falsified ones)

With false sentences of several types (attribute, place, relation, ...) each type is measured by
itself: the captions of the images that have a sentence of the type are falsified, all others stay
clean and in the gallery, and only those images and their captions ask. ``drop`` is then the mean
over the types. The types of scenes are in :mod:`glit.scenes.false_sentences`; no paper splits
Table XVII by type, and types of another source do not compare with these.

Every drop has a standard error, ``..._error``. Images are the units, and clean and falsified
answers are paired: with u_i image i's part of the drop, drop = sum_i u_i over n images,
error^2 = n / (n - 1) sum_i (u_i - drop / n)^2, which for one caption an image is the sample
variance of the per-image drops over n.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from glit.evaluation.collection import Collection, all_captions
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import CollectionEmbedder
from glit.evaluation.false_sentences import OfType, drawn, with_false_sentences
from glit.evaluation.metrics import WAYS, Metrics
from glit.evaluation.ranking import recall_at
from glit.evaluation.tasks.retrieval import Ranks, hit_ranks


def robustness(
    embedder: CollectionEmbedder,
    collection: Collection,
    config: EvaluateConfig,
    *,
    false_sentences: Mapping[str, OfType] | None = None,
) -> Metrics:
    """Measure Recall@K without and with a false sentence in every caption, and the difference.

    Args:
        embedder: the model.
        collection: images and captions.
        config: scorer, K, seed.
        false_sentences: by type (``""`` for all of one), by number of the image. None draws for
            each image a sentence of another image's caption.

    Returns:
        ``WAY_recall@K`` of the clean captions; without types ``wrong_WAY_recall@K``, with them for
        each ``TYPE_wrong_WAY_recall@1``, ``TYPE_drop``, ``TYPE_drop_error`` and ``TYPE_images``;
        ``drop`` and ``drop_error`` over all.
    """
    given = false_sentences or {"": drawn(collection, seed=config.seed)}
    scorer = config.make_scorer()
    texts, owner = all_captions(collection)
    images = scorer.images(embedder, collection)
    ranks = hit_ranks(scorer, images, scorer.texts(embedder, texts), texts, owner, config)
    found: Metrics = {
        f"{way}_recall@{k}": value
        for way in WAYS
        for k, value in recall_at(ranks[way], config.recall_at).items()
    }
    number, owner_T = len(collection.captions), np.array(owner)
    parts: list[Float[np.ndarray, " i"]] = []
    for kind, sentences in given.items():
        false = with_false_sentences(collection, sentences)
        wrong = hit_ranks(scorer, images, scorer.texts(embedder, false), false, owner, config)
        asks_I = np.isin(np.arange(number), list(sentences))
        name = f"{kind}_" if kind else ""
        asking = {WAYS[0]: asks_I[owner_T], WAYS[1]: asks_I}
        for way in WAYS:
            shares = recall_at(wrong[way][asking[way]], (1,) if kind else config.recall_at)
            found |= {f"{name}wrong_{way}_recall@{k}": value for k, value in shares.items()}
        parts.append(drop_by_image(ranks, wrong, owner_T, asks_I))
        if kind:
            found |= _drop(parts[-1][asks_I], name) | {f"{name}images": float(asks_I.sum())}
    return found | _drop(np.mean(parts, axis=0), "")


def drop_by_image(
    clean: Ranks,
    wrong: Ranks,
    owner_T: Float[np.ndarray, " t"] | np.ndarray,
    asks_I: np.ndarray,
) -> Float[np.ndarray, " i"]:
    """Return each image's part of the drop; they sum to it. Zero where an image does not ask.

    Args:
        clean: ranks by way, of the captions as they are.
        wrong: the same with false sentences.
        owner_T: the image of every caption.
        asks_I: bool, which images ask.

    Worked case: of two images that ask, one caption each, the first is found no more by its
    falsified caption and everything else stays: parts 1/4 and 0, drop 1/4.
    """
    lost_T, lost_I = (
        (clean[way] < 1).astype(np.float64) - (wrong[way] < 1).astype(np.float64) for way in WAYS
    )
    asks_T = asks_I[owner_T]
    by_text_I = np.bincount(owner_T, weights=lost_T * asks_T, minlength=len(asks_I))
    return (by_text_I / asks_T.sum() + lost_I * asks_I / asks_I.sum()) / 2


def _drop(part_I: Float[np.ndarray, " i"], name: str) -> Metrics:
    number, drop = len(part_I), float(part_I.sum())
    spread = float(((part_I - drop / number) ** 2).sum()) * number / (number - 1)
    return {f"{name}drop": drop, f"{name}drop_error": math.sqrt(spread)}
