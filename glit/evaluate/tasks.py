"""The five measurements: each takes a model and a collection and returns named numbers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from glit.errors import InputError
from glit.evaluate.collection import Collection, JointCollection, need_pairs
from glit.evaluate.config import EvaluateConfig
from glit.evaluate.encode import Embedder
from glit.evaluate.localisation import centre_inside, chance, first_hit
from glit.evaluate.precision import average_precision, best_items
from glit.evaluate.recall import first_hit_rank, recall_at
from glit.evaluate.relevance import by_text, joint_relevance

Metrics = dict[str, float]
"""Shares between 0 and 1 under CLIP_benchmark's names: ``image_retrieval`` finds the image of a
text, ``text_retrieval`` the text of an image."""


def retrieval(embedder: Embedder, collection: Collection, config: EvaluateConfig) -> Metrics:
    """Recall@K both ways (FAST-GOAL Tables III and IV); several captions an image are allowed."""
    texts, owner = _all_captions(collection)
    image_ND = _whole_images(embedder, collection)
    if config.text == "sentence-average":
        text_TD = _sentence_averages(embedder, collection)
    else:
        text_TD = embedder.texts(texts)
    return _recalls(image_ND, text_TD, texts, owner, config)


def robustness(
    embedder: Embedder,
    collection: Collection,
    config: EvaluateConfig,
    *,
    false_sentences: dict[int, str] | None = None,
) -> Metrics:
    """Recall@K with a false sentence in the middle of every caption, and the loss (Table XVII).

    Without ``false_sentences`` (by image number) each is a sentence of another image's caption,
    drawn by the seed. ``drop`` is the mean loss of R@1 over both directions, whatever
    ``recall_at`` asks for.
    """
    texts, owner = _all_captions(collection)
    image_ND = _whole_images(embedder, collection)
    with_first = dataclasses.replace(config, recall_at=(1, *config.recall_at))
    clean = _recalls(image_ND, embedder.texts(texts), texts, owner, with_first)
    wrong_texts = with_false_sentences(collection, seed=config.seed, given=false_sentences)
    wrong = _recalls(image_ND, embedder.texts(wrong_texts), texts, owner, with_first)
    drop = [clean[f"{way}_recall@1"] - wrong[f"{way}_recall@1"] for way in _WAYS]
    asked = [f"{way}_recall@{k}" for way in _WAYS for k in config.recall_at]
    return {
        **{name: clean[name] for name in asked},
        **{f"wrong_{name}": wrong[name] for name in asked},
        "drop": float(np.mean(drop)),
    }


def joint_map(embedder: Embedder, collection: Collection, config: EvaluateConfig) -> Metrics:
    """mAP@K both ways over whole images and best regions together (GOAL Tables 3 and 4).

    The galleries hold every image and the crop of its best pair, every caption and the sentence of
    its best pair, each distinct text once. For a whole or a local query both texts (or both
    images) of its sample are right; a text of several samples is right for the images of all.
    """
    texts, sample, image_ND = _joint_set(embedder, collection)
    distinct, texts_for_image, images_for_text = joint_relevance(texts, sample)
    text_UD = embedder.texts(distinct)
    k, chunk = config.precision_at, config.chunk_size
    text_query = average_precision(best_items(text_UD, image_ND, k=k, chunk=chunk), images_for_text)
    image_query = average_precision(
        best_items(image_ND, text_UD, k=k, chunk=chunk), texts_for_image
    )
    return {
        f"image_retrieval_map@{k}": float(text_query.mean()),
        f"text_retrieval_map@{k}": float(image_query.mean()),
        "pairs": float(len(texts) - len(collection.captions)),
        "distinct_texts": float(len(distinct)),
    }


def _joint_set(
    embedder: Embedder, collection: Collection
) -> tuple[list[str], list[int], Float[Tensor, "n d"]]:
    """Texts, numbers of their samples and embeddings of their images: whole ones, then regions."""
    if isinstance(collection, JointCollection):
        texts, _ = _all_captions(collection.joint)
        return texts, collection.sample, _whole_images(embedder, collection.joint)
    need_pairs(collection, "joint-map")
    chosen = [(i, None) for i in range(len(collection.captions))]
    local = [(i, pairs[0]) for i, _ in chosen if (pairs := collection.pairs(i))]
    texts = [collection.captions[i][0] for i, _ in chosen] + [pair.sentence for _, pair in local]
    sample = [i for i, _ in chosen] + [i for i, _ in local]
    pixels = embedder.ahead(
        lambda item: (
            embedder.whole(collection, item[0])
            if item[1] is None
            else embedder.region(collection, item[0], item[1])
        ),
        [*chosen, *local],
    )
    return texts, sample, embedder.images(pixels)


def localize(embedder: Embedder, collection: Collection, config: EvaluateConfig) -> Metrics:
    """Is one of the K patches most like a sentence inside its region? (Table XVI)

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
    pixels = embedder.ahead(lambda i: embedder.whole(collection, i), with_pairs)
    for low in range(0, len(with_pairs), step):
        batch = with_pairs[low : low + step]
        patch_BPD = embedder.patches([next(pixels) for _ in batch])
        owner = [n for n, i in enumerate(batch) for _ in pairs_of[i]]
        boxes = [embedder.box(collection, i, pair) for i in batch for pair in pairs_of[i]]
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


def caption_quality(embedder: Embedder, collection: Collection, config: EvaluateConfig) -> Metrics:
    """Mean cosine of image and caption over pairs drawn at random (Table I), with its error.

    The papers measure with Long-CLIP ViT-L/14; the figure means nothing across models.
    """
    texts, owner = _all_captions(collection)
    drawn = np.arange(len(texts))
    if 0 < config.quality_samples < len(texts):
        generator = np.random.default_rng(config.seed)
        drawn = np.sort(generator.choice(len(texts), config.quality_samples, replace=False))
    pixels = embedder.ahead(lambda t: embedder.whole(collection, owner[t]), drawn.tolist())
    image_ND = embedder.images(pixels)
    text_ND = embedder.texts([texts[t] for t in drawn])
    cosine_N = (image_ND * text_ND).sum(dim=1).double()
    error = float(cosine_N.std()) / len(drawn) ** 0.5 if len(drawn) > 1 else 0.0
    return {
        "mean_cosine": float(cosine_N.mean()),
        "standard_error": error,
        "pairs": float(len(drawn)),
    }


TASKS: dict[str, Callable[[Embedder, Collection, EvaluateConfig], Metrics]] = {
    "retrieval": retrieval,
    "joint-map": joint_map,
    "localize": localize,
    "robustness": robustness,
    "caption-quality": caption_quality,
}
"""Measurements by the name the command line gives them."""

_WAYS = ("image_retrieval", "text_retrieval")


def with_false_sentences(
    collection: Collection, *, seed: int, given: dict[int, str] | None = None
) -> list[str]:
    """Every caption with a false sentence before the one in its middle.

    Raises InputError when there is only one image to draw sentences from.
    """
    generator = np.random.default_rng(seed)
    number = len(collection.captions)
    if given is None and number < 2:
        raise InputError(f"{collection.name}: robustness needs two images or more to draw from")
    result = []
    for index in range(number):
        for caption, spans in zip(
            collection.captions[index], collection.sentences(index), strict=True
        ):
            if given is not None:
                false = given[index]
            else:
                false = _sentence_of_another(collection, index, generator)
            at = spans[len(spans) // 2][0] if spans else 0
            result.append(f"{caption[:at]}{false} {caption[at:]}")
    return result


def read_false_sentences(path: Path, number: int) -> dict[int, str]:
    """False sentences from a JSONL file: ``{"image": 3, "sentence": "..."}``, one for each image.

    Raises InputError for a file of another form, or one that leaves images out.
    """
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
        given = {int(line["image"]): str(line["sentence"]) for line in lines}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f'{path}: wanted JSON lines {{"image": number, "sentence": text}} ({error})'
        ) from error
    missing = [i for i in range(number) if i not in given]
    if missing:
        raise InputError(
            f"{path}: no false sentence for {len(missing)} of {number} images (first: "
            f"{missing[0]}); add them, or leave the file out"
        )
    return given


def _sentence_of_another(collection: Collection, index: int, generator: np.random.Generator) -> str:
    """A sentence of a random other image that this image's captions do not contain."""
    own = " ".join(collection.captions[index])
    number = len(collection.captions)
    candidates = []
    for _ in range(16):
        other = int(generator.integers(number - 1))
        other += other >= index
        spans = collection.sentences(other)[0]
        if spans:
            start, end = spans[int(generator.integers(len(spans)))]
            candidates.append(collection.captions[other][0][start:end])
            if candidates[-1] not in own:
                break
    if not candidates:
        raise InputError(f"{collection.name}: the captions have no sentences to draw from")
    return candidates[-1]


def _all_captions(collection: Collection) -> tuple[list[str], list[int]]:
    texts = [text for captions in collection.captions for text in captions]
    owner = [i for i, captions in enumerate(collection.captions) for _ in captions]
    return texts, owner


def _whole_images(embedder: Embedder, collection: Collection) -> Float[Tensor, "n d"]:
    numbers = range(len(collection.captions))
    return embedder.images(embedder.ahead(lambda i: embedder.whole(collection, i), numbers))


def _sentence_averages(embedder: Embedder, collection: Collection) -> Float[Tensor, "t d"]:
    """Mean of the sentences' embeddings of every caption, normalised again."""
    pieces: list[str] = []
    counts: list[int] = []
    for index, captions in enumerate(collection.captions):
        for caption, spans in zip(captions, collection.sentences(index), strict=True):
            texts = [caption[start:end] for start, end in spans] or [caption]
            pieces += texts
            counts.append(len(texts))
    embedding_SD = embedder.texts(pieces)
    means = [part.mean(dim=0) for part in embedding_SD.split(counts)]
    return F.normalize(torch.stack(means), dim=-1)


def _recalls(
    image_ND: Tensor, text_TD: Tensor, texts: list[str], owner: list[int], config: EvaluateConfig
) -> Metrics:
    to_image, to_text = by_text(owner, texts, len(image_ND))
    chunk = config.chunk_size
    image_rank = first_hit_rank(text_TD, image_ND, to_image, chunk=chunk)
    text_rank = first_hit_rank(image_ND, text_TD, to_text, chunk=chunk)
    ranks = dict(zip(_WAYS, (image_rank, text_rank), strict=True))
    return {
        f"{way}_recall@{k}": value
        for way, rank in ranks.items()
        for k, value in recall_at(rank, config.recall_at).items()
    }
