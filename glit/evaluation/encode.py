"""Encode images and texts into embeddings, in batches, with prefetching image threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from glit.backends.device import pick_device
from glit.backends.tokenizer import TextTokenizer
from glit.clip import ImageFit
from glit.clip.encoder import ClipEncoder
from glit.clip.image_processor import read_preprocessing
from glit.clip.kinds import make_encoder, open_model, open_tokenizer
from glit.clip.preprocess import crop, fit_boxes, fit_image, vision_side
from glit.clip.text_rows import TextRows, lay_out
from glit.clip.text_window import stretch_model
from glit.errors import GlitError, InputError, RunError
from glit.evaluation.collection import Collection
from glit.evaluation.encode_config import EncodeConfig
from glit.images import Pixels
from glit.runtime.cores import num_threads
from glit.runtime.prefetch import batched, map_ahead
from glit.runtime.progress import StageProgress, null_progress
from glit.training.setup import find_model, trains_unmixed

T = TypeVar("T")
R = TypeVar("R")
Box = tuple[float, float, float, float]
"""x0, y0, x1, y1 in pixels of the upright image, exclusive ends."""
Picture = tuple[int, Box | None]
"""An image of a collection by its number, and the region of it that is meant; None for the whole
image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedder:
    """A CLIP model ready to embed. Embeddings that are not finite raise: NaN makes ranks wrong."""

    name: str
    """As the user named it."""
    checkpoint: str
    """Which checkpoint of a run it is; empty where it is none."""
    folder: Path
    """Of its files."""
    encoder: ClipEncoder
    tokenizer: TextTokenizer
    fit: ImageFit
    context: int
    batch_size: int
    num_workers: int
    device: torch.device
    shortest: int = 0
    """With ``centre-crop``: the shorter side before the crop, pixels; 0 is the model's side."""
    mode: str = "bicubic"
    """Interpolation of images."""
    unmixed: bool = False
    """Whether each patch attends to itself alone in the last layer, as ``fg-clip`` and
    ``beta-clip`` train them (see :meth:`ClipEncoder.encode_images`)."""
    progress: StageProgress = field(default_factory=null_progress, repr=False, compare=False)
    """Told of texts and pictures, by batch."""

    @torch.inference_mode()
    def texts(self, texts: Sequence[str]) -> Float[Tensor, "t d"]:
        """Embeddings of texts; equal texts are encoded once, those of a length together.

        Raises:
            RunError: an embedding is not finite; names the model and the text.
        """
        different = list(dict.fromkeys(texts))
        found = torch.empty(len(different), self.encoder.width)
        for group, _, _, embedding in self.encoded_texts(different):
            found[group] = embedding.cpu()
        self.check(found, [f"the text {text[:60]!r}" for text in different])
        place = {text: i for i, text in enumerate(different)}
        return found[[place[text] for text in texts]]

    def encoded_texts(
        self, texts: Sequence[str]
    ) -> Iterator[tuple[list[int], TextRows, Float[Tensor, "slots h"], Float[Tensor, "t d"]]]:
        """Numbers of some texts, their rows, the tokens before the final layer norm of all slots,
        and embeddings; those of a length come together. On the model's device, and not checked
        to be finite.
        """
        ids = self.tokenizer.encode_closed(list(texts), context=self.context)
        self.progress.begin("texts", total=len(ids), done=0, drops=False)
        by_length = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
        for group in _token_groups(by_length, ids, self.batch_size * self.context):
            rows = lay_out(
                [ids[i] for i in group], context=self.context, pad_id=self.tokenizer.end_id
            ).to(self.device)
            with torch.inference_mode():
                tokens, embedding = self.encoder.encode_texts(rows)
            self.progress.advance(len(group))
            yield group, rows, tokens, embedding

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

    def pixels(self, images: Iterable[Pixels]) -> Iterator[Float[np.ndarray, "v d"]]:
        """Embeddings of decoded images, some ``batch_size`` at a time; not checked to be finite."""
        yield from self.squares(map(self.square, images))

    def square(self, image: Pixels) -> UInt8[Tensor, "3 s s"]:
        """A decoded image as the model's square."""
        return fit_image(
            image, side=self.encoder.side, fit=self.fit, shortest=self.shortest, mode=self.mode
        )

    def squares(
        self, squares: Iterable[UInt8[Tensor, "3 s s"]]
    ) -> Iterator[Float[np.ndarray, "v d"]]:
        """:meth:`pixels` of what :meth:`square` made of them."""
        for some in batched(squares, self.batch_size):
            with torch.inference_mode():
                found = self.encoder.encode_images(torch.stack(some).to(self.device))[1]
            yield found.cpu().numpy()

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
        for some in batched(pixels, self.batch_size):
            batch = torch.stack(some).to(self.device)
            with torch.inference_mode():
                patches, embedding = self.encoder.encode_images(
                    batch, num_tokens=len(batch) if tokens else 0, unmixed=self.unmixed
                )
            self.progress.advance(len(batch))
            yield patches, embedding

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
            boxes, width=width, height=height, side=self.encoder.side, fit=self.fit,
            shortest=self.shortest,
        )[0]  # fmt: skip

    def fitted(self, collection: Collection, picture: Picture) -> UInt8[Tensor, "3 s s"]:
        """The whole image or the region as the model's square."""
        index, box_xyxy = picture
        image = _decoded(collection, index)
        if box_xyxy is not None:
            _check_inside(collection, index, box_xyxy, image.shape[1], image.shape[0])
            image = crop(image, np.array(box_xyxy))
        return self.square(image)

    def check(self, found: Float[Tensor, "n x"], names: Sequence[str]) -> None:
        """Refuse rows that are not finite.

        Raises:
            RunError: names the model and the first of them.
        """
        good_N = found.isfinite().all(dim=1)
        if not bool(good_N.all()):
            first = int((~good_N).int().argmax())
            raise RunError(
                f"model {self.name}: its embedding of {names[first]} is not finite "
                f"({int((~good_N).sum())} of {len(good_N)} are not), so no figure would be "
                "valid; are the weights damaged?"
            )

    def ahead(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Map in order with threads, a few batches ahead."""
        if self.num_workers == 0:
            yield from map(work, items)
            return
        with ThreadPoolExecutor(self.num_workers) as pool:
            yield from map_ahead(pool, work, items, most=2 * self.batch_size)


def load_embedder(
    name: str,
    config: EncodeConfig,
    *,
    checkpoint: Literal["best", "last"] = "best",
    progress: StageProgress | None = None,
) -> Embedder:
    """Load a model by name: a built-in one, a folder, a run of ``glit train``, or a hub id.

    Args:
        name: of the model.
        config: settings.
        checkpoint: which one of a run.
        progress: shows texts and images done, by batch.
    """
    found = find_model(name, checkpoint)
    model = open_model(found.folder)
    preprocessing = read_preprocessing(found.folder, side=vision_side(model)[0])
    stretch_model(model, config.context)
    device = pick_device(config.device)
    tokenizer = open_tokenizer(found.folder)
    encoder = make_encoder(model.eval(), preprocessing, tokenizer)
    return Embedder(
        name=name,
        checkpoint=found.checkpoint,
        folder=found.folder,
        encoder=encoder.to(device),
        tokenizer=tokenizer,
        fit=preprocessing.fit if config.image_fit == "model" else config.image_fit,
        shortest=preprocessing.shortest if config.image_fit == "model" else 0,
        mode=preprocessing.mode,
        context=config.context,
        batch_size=config.batch_size,
        num_workers=num_threads(config.num_workers),
        device=device,
        unmixed=trains_unmixed(found.folder),
        progress=progress or null_progress(),
    )


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


def _token_groups(order: list[int], ids: list[list[int]], most: int) -> Iterator[list[int]]:
    """Runs of texts, longest first, of at most ``most`` tokens each (and one text at least)."""
    group: list[int] = []
    tokens = 0
    for index in order:
        if group and tokens + len(ids[index]) > most:
            yield group
            group, tokens = [], 0
        group.append(index)
        tokens += len(ids[index])
    if group:
        yield group
