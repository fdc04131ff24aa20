"""Embed the images, regions and texts of a collection, with threads that decode ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from glit.errors import GlitError, InputError
from glit.evaluation.collection import Collection
from glit.evaluation.encode_config import EncodeConfig
from glit.models.clip.embedder import Embedder
from glit.models.clip.preprocess import crop, fit_boxes
from glit.runtime.progress import StageProgress

Box = tuple[float, float, float, float]
"""x0, y0, x1, y1 in pixels of the upright image, exclusive ends."""
Picture = tuple[int, Box | None]
"""An image of a collection by its number, and the region of it that is meant; None for the whole
image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionEmbedder(Embedder):
    """A CLIP model ready to embed the images and regions of collections."""

    def wholes(self, collection: Collection) -> list[Picture]:
        """Every whole image of a collection."""
        return [(index, None) for index in range(len(collection.captions))]

    @torch.inference_mode()
    def images(self, collection: Collection, pictures: Sequence[Picture]) -> Float[Tensor, "v d"]:
        """Embeddings of whole images and regions.

        Raises:
            InputError: an image cannot be decoded.
            RunError: an embedding is not finite; names the model and the image.
        """
        found = self.encoded_images(collection, pictures, tokens=False)
        embeddings = torch.cat([embedding.cpu() for _, embedding in found])
        self.check(embeddings, [f"image {collection.names[index]}" for index, _ in pictures])
        return embeddings

    def encoded_images(
        self,
        collection: Collection,
        pictures: Sequence[Picture],
        *,
        tokens: bool = True,
    ) -> Iterator[tuple[Float[Tensor, "g p h"], Float[Tensor, "v d"]]]:
        """Patch tokens (of none, without ``tokens``) and embeddings, some ``batch_size`` pictures
        at a time; on the model's device, and not checked to be finite.

        Raises:
            InputError: an image cannot be decoded.
        """
        self.progress.begin("images", total=len(pictures), done=0, drops=False)
        pixels = self.ahead(lambda picture: self.fitted(collection, picture), pictures)
        yield from self.encoded(pixels, tokens=tokens)

    def patches(
        self, collection: Collection, numbers: Sequence[int]
    ) -> Iterator[Float[Tensor, "v p d"]]:
        """Patch tokens of whole images in the shared space, L2-normalised; a tensor for each
        ``batch_size`` images.

        Raises: as :meth:`images`.
        """
        done = 0
        wholes: list[Picture] = [(number, None) for number in numbers]
        for tokens, _ in self.encoded_images(collection, wholes):
            with torch.inference_mode():
                found = self.encoder.project_patches(tokens).cpu()
            some = numbers[done : done + len(found)]
            self.check(found.flatten(1), [f"image {collection.names[number]}" for number in some])
            done += len(found)
            yield found

    def box(self, collection: Collection, index: int, box_xyxy: Box) -> Float[np.ndarray, 4]:
        """A box, moved from the image into the model's input square; pixels, x0, y0, x1, y1.

        Raises:
            InputError: it does not overlap the image.
        """
        width, height = collection.size(index)
        _check_inside(collection, index, box_xyxy, width, height)
        boxes = np.array([box_xyxy], dtype=np.float64)
        return fit_boxes(
            boxes, width=width, height=height, side=self.encoder.side,
            fit=self.preprocessing.fit, shortest=self.preprocessing.shortest,
        )[0]  # fmt: skip

    def fitted(self, collection: Collection, picture: Picture) -> Tensor:
        """The whole image or the region as the model's square."""
        index, box_xyxy = picture
        image = _decoded(collection, index)
        if box_xyxy is not None:
            _check_inside(collection, index, box_xyxy, image.shape[1], image.shape[0])
            image = crop(image, np.array(box_xyxy))
        return self.square(image)


def load_embedder(
    name: str,
    config: EncodeConfig,
    *,
    checkpoint: Literal["best", "last"] = "best",
    progress: StageProgress | None = None,
) -> CollectionEmbedder:
    """Open a model by name with the settings of an evaluation (:meth:`Embedder.open`)."""
    return CollectionEmbedder.open(
        name, context=config.context, fit=config.image_fit, batch_size=config.batch_size,
        num_workers=config.num_workers, device=config.device, checkpoint=checkpoint,
        own_encoders=True, progress=progress,
    )  # fmt: skip


def _decoded(collection: Collection, index: int) -> UInt8[np.ndarray, "h w 3"]:
    try:
        return collection.pixels(index)
    except (GlitError, OSError) as error:
        raise InputError(
            f"{collection.name}: image {index} cannot be decoded ({error}); fix or remove it"
        ) from error


def _check_inside(
    collection: Collection, index: int, box_xyxy: Box, width: int, height: int
) -> None:
    """Refuse a box that does not overlap its image, or is NaN: it would be embedded all the same.

    Args:
        collection: holds the image.
        index: of the image.
        box_xyxy: pixels of the image.
        width: of the image, pixels.
        height: of the image, pixels.

    Raises:
        InputError: see above.
    """
    x0, y0, x1, y1 = box_xyxy
    if not (x0 < width and y0 < height and x1 > 0 and y1 > 0):
        raise InputError(
            f"{collection.name}: a box of {collection.names[index]} is {box_xyxy}, outside its "
            f"{width} x {height} pixels; are these the annotated images, in their original size?"
        )
