"""One planned sample of a batch, which loads its pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from glit.clip import ImageFit
from glit.clip.preprocess import crop, touched_patches, write_fitted
from glit.data.rle import decode_rle, read_rle
from glit.dataset.columns import RowGroup
from glit.dataset.local_pairs import LocalPair
from glit.errors import DatasetError
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
    """The change to the image before all else; pairs and boxes are of the changed one."""
    filler: bool = False
    """True if it only fills up a batch."""

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

    def write_patches(
        self, out_KP: Bool[Tensor, "k p"], *, side: int, patch_size: int, fit: ImageFit
    ) -> None:
        """Write which patches the mask of each pair's region touches; none where it has no mask.

        Args:
            out_KP: the memory given, all false; patches row-major.
            side: of the model's input square, pixels.
            patch_size: side of a patch, pixels.
            fit: how an image becomes the square.

        Raises:
            DatasetError: a mask's run lengths are damaged, or of another size than the image.
        """
        size = {name: self.group.value(name, self.row) for name in ("height", "width")}
        for pair, out_P in zip(self.pairs, out_KP.numpy(), strict=True):
            if not pair.mask:
                continue
            try:
                mask = decode_rle(read_rle(pair.mask, **size), **size)
            except ValueError as error:
                raise DatasetError(f"the mask of a region: {error}") from error
            if self.augmentation is not None:
                mask = self.augmentation.image(mask)
            out_P[:] = touched_patches(mask, side=side, patch_size=patch_size, fit=fit)
