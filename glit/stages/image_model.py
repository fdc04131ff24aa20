"""A model that embeds images, to compare them by what they show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float32

from glit.errors import RunError
from glit.images import Pixels
from glit.recipes.config import Device
from glit.recipes.extras import require

if TYPE_CHECKING:
    from torch import Tensor


class ImageModel:
    """A CLIP for whole images.

    Args:
        model: a name, a folder, a run or a hub id.
        needed_for: what wants it, for messages.
        device: where it runs.

    Raises:
        MissingExtraError: the extra ``models`` is not installed.
        WeightsError: there is no such model.
    """

    def __init__(self, model: str, *, needed_for: str, device: Device = "auto") -> None:
        require("models", needed_for=needed_for)
        from glit.backends.model_files import weights_hash
        from glit.evaluation.encode import load_embedder
        from glit.evaluation.encode_config import EncodeConfig
        from glit.runtime.process_state import without_bars

        with without_bars():
            self._embedder = load_embedder(model, EncodeConfig(device=device))
        self.name = model
        self.sha256 = weights_hash(self._embedder.folder)
        self.width = self._embedder.encoder.width
        self.batch_size = self._embedder.batch_size

    def square(self, pixels: Pixels) -> Tensor:
        """The image as the model reads it; small, so that the image itself can go."""
        return self._embedder.square(pixels)

    def embed(self, squares: Sequence[Tensor]) -> Float32[np.ndarray, "N D"]:
        """L2-normalised embeddings of images, by what :meth:`square` made of them.

        Raises:
            RunError: an embedding is not finite.
        """
        found = np.empty((len(squares), self.width), np.float32)
        done = 0
        for some in self._embedder.squares(iter(squares)):
            found[done : done + len(some)] = some
            done += len(some)
        self._check(found)
        return found

    def pixels(self, images: Iterator[Pixels]) -> Iterator[Float32[np.ndarray, "n D"]]:
        """Embeddings of decoded images, some at a time.

        Raises:
            RunError: an embedding is not finite.
        """
        for some in self._embedder.pixels(images):
            self._check(some)
            yield some

    def _check(self, found: np.ndarray) -> None:
        if not np.isfinite(found).all():
            raise RunError(
                f"model {self.name}: an embedding is not finite; are the weights damaged?"
            )
