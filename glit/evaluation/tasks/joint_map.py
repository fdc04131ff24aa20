"""``joint-map``: mAP@K over whole images and best regions together (GOAL Tables 3 and 4)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from glit.evaluation.collection import Collection, JointCollection, need_pairs
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import CollectionEmbedder, Picture
from glit.evaluation.metrics import WAYS, Metrics
from glit.evaluation.ranking import average_precision
from glit.evaluation.relevance import joint_relevance


def joint_map(
    embedder: CollectionEmbedder, collection: Collection, config: EvaluateConfig
) -> Metrics:
    """mAP@K both ways over whole images and best regions together (GOAL Tables 3 and 4).

    The galleries hold every image and the crop of its best pair, every caption and the sentence of
    its best pair, each distinct text once. For a whole or a local query both texts (or both
    images) of its sample are right; a text of several samples is right for the images of all.
    """
    texts, sample, image_ND = _joint_set(embedder, collection)
    distinct, texts_for_image, images_for_text = joint_relevance(texts, sample)
    text_UD = embedder.texts(distinct)
    k = config.precision_at
    found = {}
    for way, query, gallery, relevance in (
        (WAYS[0], text_UD, image_ND, images_for_text),
        (WAYS[1], image_ND, text_UD, texts_for_image),
    ):
        precision_Q = average_precision(
            lambda some, query=query, gallery=gallery: query[some] @ gallery.T,
            num_gallery=len(gallery), relevance=relevance, k=k, chunk=config.chunk_size,
        )  # fmt: skip
        found[f"{way}_map@{k}"] = float(precision_Q.mean())
    return {
        **found,
        "pairs": float(len(texts) - len(collection.captions)),
        "distinct_texts": float(len(distinct)),
    }


def _joint_set(
    embedder: CollectionEmbedder, collection: Collection
) -> tuple[list[str], list[int], Float[Tensor, "n d"]]:
    """Texts, numbers of their samples and embeddings of their images: whole ones, then regions."""
    if isinstance(collection, JointCollection):
        joint = collection.joint
        texts = [text for captions in joint.captions for text in captions]
        return texts, collection.sample, embedder.images(joint, embedder.wholes(joint))
    need_pairs(collection, "joint-map")
    whole: list[Picture] = embedder.wholes(collection)
    local = [(i, pairs[0]) for i, _ in whole if (pairs := collection.pairs(i))]
    regions: list[Picture] = [(i, pair.box_xyxy) for i, pair in local]
    texts = [collection.captions[i][0] for i, _ in whole] + [pair.sentence for _, pair in local]
    sample = [i for i, _ in whole] + [i for i, _ in local]
    return texts, sample, embedder.images(collection, [*whole, *regions])
