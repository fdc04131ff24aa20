"""Images and texts to embeddings, in batches; images decoded by threads ahead of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from glit.backends.tokenizer import TextTokenizer
from glit.clip import ImageFit
from glit.clip.encoder import DualEncoder
from glit.clip.folder import load_clip, read_preprocessing
from glit.clip.preprocess import crop, fit_boxes, fit_image
from glit.clip.text_rows import lay_out
from glit.clip.text_window import stretch_model
from glit.errors import GlitError, InputError
from glit.evaluate.collection import Collection
from glit.evaluate.config import EvaluateConfig
from glit.images import decode
from glit.train.setup import find_model
from glit.train.source import LocalPair

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedder:
    """A CLIP model ready to embed."""

    name: str
    """As the user named it."""
    encoder: DualEncoder
    tokenizer: TextTokenizer
    fit: ImageFit
    context: int
    batch_size: int
    num_workers: int
    device: torch.device

    @torch.inference_mode()
    def texts(self, texts: Sequence[str]) -> Float[Tensor, "t d"]:
        """Embeddings of texts; equal texts are encoded once, and packed by length."""
        different = list(dict.fromkeys(texts))
        ids = self.tokenizer.encode_closed(different, context=self.context)
        by_length = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
        found = torch.empty(len(ids), self.encoder.clip.text_projection.out_features)
        for group in _token_groups(by_length, ids, self.batch_size * self.context):
            packed = lay_out([ids[i] for i in group], pad_id=self.tokenizer.end_id)
            _, embedding = self.encoder.encode_texts(packed.to(self.device))
            found[group] = embedding.cpu()
        place = {text: i for i, text in enumerate(different)}
        return found[[place[text] for text in texts]]

    @torch.inference_mode()
    def images(self, pixels: Iterable[UInt8[Tensor, "3 s s"]]) -> Float[Tensor, "v d"]:
        """Embeddings of fitted images."""
        found = [
            self.encoder.encode_images(torch.stack(batch).to(self.device))[1].cpu()
            for batch in _batches(pixels, self.batch_size)
        ]
        return torch.cat(found)

    @torch.inference_mode()
    def patches(self, pixels: Sequence[UInt8[Tensor, "3 s s"]]) -> Float[Tensor, "v p d"]:
        """Every patch token, projected and normalised like a pooled one."""
        batch = torch.stack(list(pixels)).to(self.device)
        tokens, _ = self.encoder.encode_images(batch, num_tokens=len(batch))
        return self.encoder.project_patches(tokens).cpu()

    def whole(self, collection: Collection, index: int) -> UInt8[Tensor, "3 s s"]:
        """A whole image, fitted."""
        return fit_image(_decoded(collection, index), side=self.encoder.side, fit=self.fit)

    def region(self, collection: Collection, index: int, pair: LocalPair) -> UInt8[Tensor, "3 s s"]:
        """The crop of a pair, fitted."""
        image = crop(_decoded(collection, index), np.array(pair.box_xyxy))
        return fit_image(image, side=self.encoder.side, fit=self.fit)

    def box(self, collection: Collection, index: int, pair: LocalPair) -> Float[np.ndarray, 4]:
        """A pair's region in pixels of the model's square."""
        width, height = collection.size(index)
        box = np.array([pair.box_xyxy], dtype=np.float64)
        return fit_boxes(box, width=width, height=height, side=self.encoder.side, fit=self.fit)[0]

    def ahead(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """``map`` by threads, in order, a few batches ahead of whoever consumes it."""
        if self.num_workers == 0:
            yield from map(work, items)
            return
        waiting = iter(items)
        with ThreadPoolExecutor(self.num_workers) as pool:
            futures = [pool.submit(work, item) for item in islice(waiting, 2 * self.batch_size)]
            while futures:
                future = futures.pop(0)
                futures += [pool.submit(work, item) for item in islice(waiting, 1)]
                yield future.result()


def load_embedder(name: str, config: EvaluateConfig) -> Embedder:
    """Load a model by name: a built-in one, a folder, a run of ``glit train``, or a hub id."""
    folder = find_model(name)
    preprocessing = read_preprocessing(folder)
    model = load_clip(folder)
    stretch_model(model, config.context)
    device = _device(config.device)
    encoder = DualEncoder(
        model.eval(), mean=preprocessing.mean, std=preprocessing.std, needs_tokens=False
    )
    return Embedder(
        name=name,
        encoder=encoder.to(device),
        tokenizer=TextTokenizer(folder),
        fit=preprocessing.fit if config.image_fit == "model" else config.image_fit,
        context=config.context,
        batch_size=config.batch_size,
        num_workers=config.num_workers,
        device=device,
    )


def _decoded(collection: Collection, index: int) -> UInt8[np.ndarray, "h w 3"]:
    try:
        return decode(collection.image(index))
    except (GlitError, OSError) as error:
        raise InputError(
            f"{collection.name}: image {index} cannot be decoded ({error}); mend or leave it out"
        ) from error


def _device(choice: str) -> torch.device:
    if choice != "auto":
        return torch.device(choice)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    waiting = iter(items)
    while batch := list(islice(waiting, size)):
        yield batch


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
