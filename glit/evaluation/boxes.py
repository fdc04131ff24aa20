"""Embed images and boxes of them, as crops or as the patches of the whole image under them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from glit.evaluation.collection import Collection
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import CollectionEmbedder, Picture
from glit.models.clip.pooling import patch_mask


def embed_pictures(
    embedder: CollectionEmbedder,
    collection: Collection,
    pictures: Sequence[Picture],
    config: EvaluateConfig,
) -> Float[Tensor, "v d"]:
    """Embeddings of whole images and boxes, boxes by ``evaluate.box_features``.

    Args:
        embedder: the model.
        collection: holds the images.
        pictures: those of an image follow each other.
        config: settings.

    Raises:
        InputError: an image cannot be decoded, or a box does not overlap it.
        RunError: an embedding is not finite.
    """
    if config.box_features == "crop":
        return embedder.images(collection, pictures)
    found = torch.empty(len(pictures), embedder.encoder.width)
    for embed, is_box in ((_whole, False), (_by_patches, True)):
        places = [i for i, (_, box) in enumerate(pictures) if (box is not None) == is_box]
        if places:
            found[places] = embed(embedder, collection, [pictures[i] for i in places])
    return found


def _whole(
    embedder: CollectionEmbedder, collection: Collection, pictures: Sequence[Picture]
) -> Float[Tensor, "v d"]:
    return embedder.images(collection, pictures)


def _by_patches(
    embedder: CollectionEmbedder, collection: Collection, boxes: Sequence[Picture]
) -> Float[Tensor, "v d"]:
    """The patch tokens under each box, pooled and projected. The whole image is squeezed into the
    model's square: of a box that its crop leaves out, there would be no patch.
    """
    embedder = embedder.squeezed()
    of_image = [list(some) for _, some in groupby(boxes, key=lambda picture: picture[0])]
    wholes: list[Picture] = [(some[0][0], None) for some in of_image]
    rest, found = iter(of_image), []
    for tokens_GPH, _ in embedder.encoded_images(collection, wholes):
        for tokens_PH in tokens_GPH:
            fitted = [embedder.box(collection, i, box) for i, box in next(rest) if box is not None]
            mask_1KP = patch_mask(
                torch.from_numpy(np.stack(fitted)[None]).float().to(tokens_PH.device),
                patch_size=embedder.encoder.patch_size,
                grid=embedder.encoder.grid,
            )
            with torch.inference_mode():
                found.append(embedder.encoder.pool_patches(tokens_PH[None], mask_1KP)[0].cpu())
    embeddings = torch.cat(found)
    embedder.check(embeddings, [f"image {collection.names[index]}" for index, _ in boxes])
    return embeddings
