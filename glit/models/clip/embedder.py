"""Open a CLIP by name and embed texts and decoded images in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Self, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from glit.errors import RunError
from glit.images import Pixels
from glit.models.clip.encoder import ClipEncoder
from glit.models.clip.image_fit import ImageFit
from glit.models.clip.image_processor import Preprocessing
from glit.models.clip.kinds import open_encoder
from glit.models.clip.runs import find_model, trains_unmixed
from glit.models.clip.text_rows import TextRows, lay_out
from glit.models.device import pick_device
from glit.models.files import weights_hash
from glit.models.tokenizer import TextTokenizer
from glit.runtime.cores import num_threads
from glit.runtime.prefetch import batched, map_ahead
from glit.runtime.process_state import without_bars
from glit.runtime.progress import StageProgress, null_progress

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedder:
    """A CLIP model ready to embed. Embeddings that are not finite raise: NaN makes ranks wrong."""

    name: str
    """The model's name, as the user gave it."""
    checkpoint: str
    """The name of a run's checkpoint; empty for a model that is no run."""
    folder: Path
    """Folder of its files."""
    encoder: ClipEncoder
    tokenizer: TextTokenizer
    preprocessing: Preprocessing
    """Resizing and normalisation of the model's images."""
    context: int
    batch_size: int
    num_workers: int
    device: torch.device
    unmixed: bool = False
    """True if each patch attends to itself alone in the last layer, as ``fg-clip`` and
    ``beta-clip`` train them (see :meth:`ClipEncoder.encode_images`)."""
    progress: StageProgress = field(default_factory=null_progress, repr=False, compare=False)
    """Told of texts and pictures, by batch."""

    @classmethod
    def open(
        cls,
        name: str,
        *,
        context: int = 0,
        fit: Literal["model"] | ImageFit = "model",
        batch_size: int = 64,
        num_workers: int = -1,
        device: str = "auto",
        checkpoint: Literal["best", "last"] = "best",
        own_encoders: bool = False,
        progress: StageProgress | None = None,
    ) -> Self:
        """Open a model by name: a built-in one, a folder, a run of ``glit train``, or a hub id.

        Args:
            name: of the model.
            context: text window in tokens, to which a shorter one is stretched; 0 is its own.
            fit: how images become the model's square; ``model`` as its preprocessor says.
            batch_size: images, or rows of texts, per encoder batch.
            num_workers: threads that fit images; -1 starts one per usable core, 0 none.
            device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
            checkpoint: which one of a run.
            own_encoders: take a run whose objective encodes by itself, too; this embeds with the
                model that it started from.
            progress: shows texts and images done, by batch.

        Raises:
            WeightsError: there is no such model, or it cannot be used.
        """
        with without_bars():
            found = find_model(name, checkpoint)
            opened = open_encoder(
                found.folder, context=context, device=device, name=name, own_encoders=own_encoders
            )
        preprocessing = opened.preprocessing
        if fit != "model":
            preprocessing = replace(preprocessing, fit=fit, shortest=0)
        return cls(
            name=name,
            checkpoint=found.checkpoint,
            folder=found.folder,
            encoder=opened.encoder,
            tokenizer=opened.tokenizer,
            preprocessing=preprocessing,
            context=context or opened.encoder.context,
            batch_size=batch_size,
            num_workers=num_threads(num_workers),
            device=pick_device(device),
            unmixed=trains_unmixed(found.folder),
            progress=progress or null_progress(),
        )

    def squeezed(self) -> Self:
        """The same, with images squeezed into the model's square."""
        return replace(self, preprocessing=replace(self.preprocessing, fit="resize", shortest=0))

    @property
    def width(self) -> int:
        """Length of an embedding."""
        return self.encoder.width

    @property
    def sha256(self) -> str:
        """Hash of the model's weights, hex."""
        return weights_hash(self.folder)

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
        """Encode texts in batches of about equal length, longest first.

        Yields for each batch: the numbers of its texts in ``texts``, their rows, the features
        [slots, H] of all token slots before the final layer norm, and the embeddings [T, D]. All
        are on the model's device, and not checked to be finite.
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

    def pixels(self, images: Iterable[Pixels]) -> Iterator[Float[np.ndarray, "v d"]]:
        """Embeddings of decoded images, some ``batch_size`` at a time.

        Raises:
            RunError: an embedding is not finite.
        """
        yield from self.squares(map(self.square, images))

    def square(self, image: Pixels) -> Tensor:
        """A decoded image as the model's square."""
        return self.encoder.fit(image, self.preprocessing)

    def squares(self, squares: Iterable[Tensor]) -> Iterator[Float[np.ndarray, "v d"]]:
        """Embeddings of what :meth:`square` made of images, some ``batch_size`` at a time.

        Raises:
            RunError: an embedding is not finite.
        """
        done = 0
        for _, embedding in self.encoded(squares, tokens=False):
            found = embedding.cpu()
            self.check(found, [f"image {done + number + 1}" for number in range(len(found))])
            done += len(found)
            yield found.numpy()

    def embed(self, squares: Sequence[Tensor]) -> Float[np.ndarray, "v d"]:
        """:meth:`squares` of all at once; [0, D] of none."""
        return np.concatenate([np.empty((0, self.width), np.float32), *self.squares(squares)])

    def encoded(
        self, squares: Iterable[Tensor], *, tokens: bool
    ) -> Iterator[tuple[Float[Tensor, "g p h"], Float[Tensor, "v d"]]]:
        """Patch tokens (of none, without ``tokens``) and embeddings, some ``batch_size`` squares
        at a time; on the model's device, and not checked to be finite.
        """
        for some in batched(squares, self.batch_size):
            batch = torch.stack(some).to(self.device)
            with torch.inference_mode():
                found = self.encoder.encode_images(
                    batch, num_tokens=len(batch) if tokens else 0, unmixed=self.unmixed and tokens
                )
            self.progress.advance(len(batch))
            yield found

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
