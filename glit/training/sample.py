"""One planned sample of a batch, and its image, which becomes pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from glit.data.rle import decode_rle, read_rle
from glit.dataset.columns import RowGroup
from glit.dataset.local_pairs import LocalPair
from glit.dataset.row import check_size
from glit.errors import DatasetError
from glit.images import decode
from glit.models.clip.image_fit import ImageFit
from glit.models.clip.preprocess import crop, touched_patches, write_fitted
from glit.training.augment import Augmentation


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedImage:
    """An image as its file, and how its pixels are made; may be sent to another process."""

    data: bytes
    """The encoded file."""
    name: str
    """Its path in the dataset's source, for messages."""
    width: int
    """Pixels, as its row says."""
    height: int
    """Pixels, as its row says."""
    augmentation: Augmentation | None
    """The change to the image before all else."""
    boxes: tuple[tuple[float, float, float, float], ...]
    """The crops, in pixels of the changed image."""

    def write_pixels(
        self,
        whole: UInt8[Tensor, "3 s s"] | None,
        crops: UInt8[Tensor, "k 3 s s"],
        *,
        fit: ImageFit,
    ) -> None:
        """Decode the image once; fit it and its crops into the memory given.

        Args:
            whole: for the whole image, None where it is not needed.
            crops: for each of ``boxes``.
            fit: how an image becomes the square.

        Raises:
            ImageError: the image is damaged.
            DatasetError: it has another size than its row says.
        """
        image = decode(self.data)
        check_size(image, width=self.width, height=self.height, name=self.name)
        if self.augmentation is not None:
            image = self.augmentation.image(image)
        if whole is not None:
            write_fitted(image, whole, fit=fit)
        for box, out in zip(self.boxes, crops, strict=True):
            write_fitted(crop(image, np.array(box)), out, fit=fit)


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

    def encoded(self, *, crops: bool) -> EncodedImage:
        """The image, with the boxes of the pairs if ``crops`` are needed.

        Raises:
            DatasetError: it is stored by path and cannot be read, or is another image now.
        """
        group, row = self.group, self.row
        return EncodedImage(
            data=group.image(row),
            name=group.value("source_path", row),
            width=group.value("width", row),
            height=group.value("height", row),
            augmentation=self.augmentation,
            boxes=tuple(pair.box_xyxy for pair in self.pairs) if crops else (),
        )

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
