"""Find captions of another picture, and count texts that hardly fit their own, by a CLIP.

Embeddings go to temporary files; in memory stay those of a sample.

Shapes: S of the sample, D width of the shared space.
"""

from __future__ import annotations

import math
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Float32, Int

from glit.images import Pixels
from glit.inspection.boxes import PictureSize, pixel_box
from glit.inspection.findings import Estimate
from glit.inspection.hashed_sample import HashedSample, hash_key
from glit.inspection.items import Item
from glit.inspection.repeats import Texts
from glit.inspection.scores import Scores, below_the_middle, own_scores, scores, wilson

if TYPE_CHECKING:
    from glit.models.clip.embedder import Embedder

SAMPLE = 1024
"""Pictures, and pairs of a phrase and a box, that others are compared with: those with the smallest
hashes."""
_MOST_PAIRS = 16
"""Pairs of an image that are compared, at most."""
FEWEST = 50
"""Fewest pictures with captions, and fewest pairs, of which a share is told."""
_LEAST_RECALL = 0.5
"""Captions of other pictures that have to be found, for the model to be of any use."""
_BLOCK = 4096
_SAID_CHARS = 120
Vector = Float32[np.ndarray, " D"]
NO_PICTURE = "no picture with a caption could be read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Squares:
    """A picture, and boxes of it, as a model takes them."""

    picture: Any
    pairs: tuple[tuple[int, str, Any], ...] = ()
    """Key, text, and the square of the text's box."""


class Matches:
    """Captions with their pictures, and phrases with their boxes, to compare them at the end.

    Args:
        model: a CLIP.
    """

    def __init__(self, model: Embedder) -> None:
        self._model, self._boxes = model, model.squeezed()
        self._pictures, self._texts = Vectors(model.width), Vectors(model.width)
        self._names, self._captions = Texts(), Texts()
        self._keys, self._image = array("Q"), array("q")
        self._pairs = HashedSample[tuple[str, Vector, Vector]](SAMPLE)
        """Images, and the embeddings of texts and of their boxes."""

    def close(self) -> None:
        """Delete the files."""
        for each in (self._pictures, self._texts, self._names, self._captions):
            each.close()

    def cut(self, item: Item, pixels: Pixels, orientation: int) -> Squares:
        """Return what is embedded of a decoded picture; threads may call it.

        Args:
            item: the image.
            pixels: upright.
            orientation: EXIF orientation of the file.
        """
        pairs = []
        keyed = sorted((hash_key(f"{item.name}\n{n}\n{text}"), n, text) for n, text in item.pairs)
        for key, number, text in keyed[:_MOST_PAIRS]:
            within = _within(item, number, pixels, orientation) if self._pairs.wants(key) else None
            if within is not None and within.size:
                pairs.append((key, text, self._boxes.square(within)))
        picture = self._model.square(pixels) if item.captions else None
        return Squares(picture=picture, pairs=tuple(pairs))

    def add(self, some: Sequence[tuple[Item, Squares]]) -> None:
        """Add images.

        Raises:
            RunError: an embedding is not finite.
        """
        texts: list[str] = []
        pictures = []
        for item, squares in some:
            captions = [each for each in item.captions or () if each.strip()]
            if captions:
                pictures.append(squares.picture)
                self._image.extend([len(self._names)] * len(captions))
                self._keys.append(hash_key(item.name))
                self._names.add(item.name)
            for caption in captions:
                self._captions.add(caption[:_SAID_CHARS])
            texts += captions
        self._pictures.add(self._model.embed(pictures))
        self._texts.add(self._model.texts(texts).numpy())
        pairs = [
            (item.name, *each) for item, s in some for each in s.pairs if self._pairs.wants(each[0])
        ]
        boxes = self._boxes.embed([square for *_, square in pairs])
        words = self._model.texts([text for _, _, text, _ in pairs]).numpy()
        for (name, key, _, _), box, text in zip(pairs, boxes, words, strict=True):
            self._pairs.add(key, (name, text, box))

    @property
    def captions(self) -> int:
        """Captions that were added."""
        return len(self._captions)

    def unlooked(self) -> str:
        """Why nothing can be said of the captions; empty if it can."""
        if not self.captions:
            return NO_PICTURE
        if len(self._names) < FEWEST:
            return f"takes {FEWEST} pictures with captions, here are {len(self._names)}"
        if self._found.recall < _LEAST_RECALL:
            return (
                f"{self._model.name} cannot tell these captions apart: it would find "
                f"{self._found.recall:.0%} of the captions of other pictures"
            )
        return ""

    def faults(self) -> Iterator[tuple[str, str]]:
        """Captions of another picture: the name of the image, and the caption with the share of
        captions of other pictures that fit theirs as well; none if :meth:`unlooked` says why."""
        found = self._found
        for number in () if self.unlooked() else np.flatnonzero(found.own_N < found.least):
            share = float(np.mean(found.others_M >= found.own_N[number]))
            said = repr(self._captions[int(number)])
            yield (
                self._names[self._image[number]],
                f"{said}: {share:.0%} of captions with other pictures match as well",
            )

    @cached_property
    def _found(self) -> Scores:
        first = np.unique(np.frombuffer(self._image, np.int64), return_index=True)[1]
        images = self._sample
        pictures_SD, texts_SD = self._pictures[images], self._texts[first[images]]
        own = []
        for start in range(0, len(self._texts), _BLOCK):
            block = np.arange(start, min(start + _BLOCK, len(self._texts)))
            image = np.frombuffer(self._image, np.int64)[block]
            own.append(own_scores(self._texts[block], self._pictures[image], texts_SD, pictures_SD))
        return scores(np.concatenate(own), texts_SD @ pictures_SD.T)

    @property
    def _sample(self) -> Int[np.ndarray, " S"]:
        """Images of the sample."""
        return np.argsort(np.frombuffer(self._keys, np.uint64), kind="stable")[:SAMPLE]

    def estimates(self) -> Iterator[Estimate]:
        """The share of pairs of a phrase and a box that fit worse than half of the others; nothing
        if it may be half of all pairs, as of a model that cannot tell them apart."""
        if len(self._pairs) < FEWEST:
            return
        names, texts, boxes = map(np.array, zip(*self._pairs.values(), strict=True))
        cosine_SS = texts @ boxes.T
        low = int(below_the_middle(cosine_SS, names[:, None] != names).sum())
        at_least, at_most = wilson(low, len(names))
        if at_most >= 0.5:
            return
        yield Estimate(
            of="pairs", claim="below the middle", items=len(names), share=low / len(names),
            at_least=at_least, at_most=at_most,
            method=f"{self._model.name} finds that their text fits half of the other boxes better",
        )  # fmt: skip


class Vectors:
    """Embeddings in a temporary file, by number, in half precision.

    Args:
        width: length of one.
    """

    def __init__(self, width: int) -> None:
        self._file, self._width, self._number = tempfile.TemporaryFile(), width, 0  # noqa: SIM115 (closed by close)

    def __len__(self) -> int:
        return self._number

    def add(self, found: Float[np.ndarray, "n D"]) -> None:
        """Write some."""
        self._file.write(found.astype(np.float16).tobytes())
        self._number += len(found)

    def __getitem__(self, numbers: Int[np.ndarray, " n"]) -> Float32[np.ndarray, "n D"]:
        self._file.flush()
        shape = (self._number, self._width)
        return np.memmap(self._file, np.float16, "r", shape=shape)[numbers].astype(np.float32)

    def close(self) -> None:
        """Delete the file."""
        self._file.close()


def _within(item: Item, number: int, pixels: Pixels, orientation: int) -> Pixels | None:
    """The pixels of a box; None of one that is in a picture of another shape."""
    height, width = pixels.shape[:2]
    size = PictureSize(width=width, height=height, orientation=orientation)
    try:
        x0, y0, x1, y1 = (max(edge, 0.0) for edge in pixel_box(item, number, size))
        return pixels[int(y0) : math.ceil(y1), int(x0) : math.ceil(x1)]
    except (ValueError, OverflowError):  # not finite
        return None
