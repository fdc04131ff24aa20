"""One planned sample of a batch, which loads its pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, UInt8
from torch import Tensor

from glit.clip import ImageFit
from glit.clip.preprocess import crop, write_fitted
from glit.dataset.columns import RowGroup
from glit.dataset.local_pairs import LocalPair
from glit.training.augment import Augmentation


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSample:
    """The plan of one sample of a batch; no pixel is decoded yet."""

    group: RowGroup
    row: int
    """Its number in the group."""
    caption: str
    pairs: tuple[LocalPair, ...]
    boxes_K4: Float[np.ndarray, "k 4"]
    """The pairs' regions in pixels of the model's square."""
    texts: tuple[str, ...] = ()
    """Further texts that the objective picked."""
    augmentation: Augmentation | None = None
    """What is done to the image before all else; pairs and boxes are of the changed one."""
    filler: bool = False
    """Whether it only fills up a batch."""

    def write_pixels(
        self,
        whole: UInt8[Tensor, "3 s s"] | None,
        crops: UInt8[Tensor, "k 3 s s"],
        *,
        fit: ImageFit,
    ) -> None:
        """Decode the image once; fit it and the crops of the pairs into the memory given.

        Args:
            whole: for the whole image, None where it is not needed.
            crops: for the crop of every pair; empty where they are not needed.
            fit: how an image becomes the square.

        Raises:
            ImageError: the image is damaged.
            DatasetError: it has another size than its row says.
        """
        if whole is None and not len(crops):
            return
        image = self.group.pixels(self.row)
        if self.augmentation is not None:
            image = self.augmentation.image(image)
        if whole is not None:
            write_fitted(image, whole, fit=fit)
        for pair, out in zip(self.pairs if len(crops) else (), crops, strict=True):
            write_fitted(crop(image, np.array(pair.box_xyxy)), out, fit=fit)
