"""Automatic masks as boxes: a grid of points over each image, decoded, filtered, measured, thinned.

The steps and settings are those of segment-anything's ``SamAutomaticMaskGenerator`` without crops
(Segment Anything, Kirillov et al. 2023, section B). Made for throughput: images go through the
encoder together, points of several images through the decoder together; masks whose predicted IoU
is too low are never made, no mask is encoded, and only boxes and areas leave the device.

``exact`` runs the published modules in the published order instead, so that every number is the
one that ``SamAutomaticMaskGenerator`` gives on the same machine.

Shapes: K masks of one image, S the encoder's side, h and w the mask logits' sides.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from glit.backends.sam.decoder import ImageSide, PointDecoder
from glit.backends.sam.encoder import encode
from glit.backends.sam.model import MaskThresholds
from glit.images import Pixels

if TYPE_CHECKING:
    from segment_anything.modeling import Sam

_POINTS_AT_ONCE = {"cpu": 16, "cuda": 128}
"""Points in one decoder call, over all its images."""
_EXACT_POINTS_AT_ONCE = 64
"""The generator's own batch; rounding depends on it."""
_PIXELS_AT_ONCE = {"cpu": 1 << 22, "cuda": 1 << 28}
"""Mask pixels measured at a time."""
_IMAGES_AT_ONCE = {"cpu": 1}
"""Images that share batches; elsewhere all that are given. On a CPU a batch takes its memory many
times over and no less time, and alone an image gives the same bytes whatever its neighbours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskBoxes:
    """The automatic masks of one image, best predicted IoU first."""

    boxes: Int[np.ndarray, "K 4"]
    """x0, y0, x1, y1 in the image's pixels, exclusive ends."""
    predicted_iou: Float[np.ndarray, " K"]
    stability: Float[np.ndarray, " K"]
    area_px: Int[np.ndarray, " K"]
    """Pixels of the mask itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """An image ready for the encoder."""

    pixels: Tensor
    """[3, S, S] normalised, padded on the right and below."""
    points: Tensor
    """[points, 2] x and y in the encoder's pixels."""
    inner: tuple[int, int]
    """Height and width of the picture within the square."""
    size: tuple[int, int]
    """Height and width of the image."""


class AutomaticMasks:
    """Boxes of all masks of images.

    Args:
        model: in evaluation mode, on its device.
        thresholds: settings that belong to the weights.
        exact: the published modules, image by image, in float32.
        dtype: of the fast way's matrix products.
        compiled: run the encoder through ``torch.compile``.
    """

    def __init__(
        self,
        model: Sam,
        thresholds: MaskThresholds,
        *,
        exact: bool = False,
        dtype: torch.dtype = torch.float32,
        compiled: bool = False,
    ) -> None:
        from segment_anything.utils.amg import build_point_grid
        from segment_anything.utils.transforms import ResizeLongestSide

        self.model = model
        self._thresholds = thresholds
        self._exact = exact
        self._dtype = dtype
        self._device = model.device
        self._resize = ResizeLongestSide(model.image_encoder.img_size)
        self._grid = build_point_grid(thresholds.points_per_side)
        with torch.inference_mode():
            self._decoder = None if exact else PointDecoder(model, dtype)
        self._encode: Any = torch.compile(encode) if compiled else encode

    def __call__(self, images: Sequence[Pixels]) -> list[MaskBoxes]:
        """The masks of each image. One so thin that no pixel would be left of its shorter side in
        the encoder's square has none.

        Raises:
            FloatingPointError: the model answered NaN or infinity.
        """
        good = [index for index, image in enumerate(images) if min(self._inner(image)) > 0]
        found = [_none(self._device)] * len(images)
        at_once = _IMAGES_AT_ONCE.get(self._device.type, len(images))
        run = self._exactly if self._exact else self._together
        with torch.inference_mode():
            for start in range(0, len(good), max(1, at_once)):
                some = good[start : start + at_once]
                masks = run([self._prepare(images[index]) for index in some])
                for index, own in zip(some, masks, strict=True):
                    found[index] = own
            return [self._thinned(masks) for masks in found]

    def _inner(self, image: Pixels) -> tuple[int, int]:
        """Height and width of an image within the encoder's square."""
        side = self._resize.target_length
        return self._resize.get_preprocess_shape(image.shape[0], image.shape[1], side)

    def _prepare(self, image: Pixels) -> _Prepared:
        size = (image.shape[0], image.shape[1])
        resized = torch.as_tensor(self._resize.apply_image(image), device=self._device)
        points = self._resize.apply_coords(self._grid * np.array(size)[None, ::-1], size)
        # published points are float64, which Apple's GPU does not have
        double = self._exact and self._device.type != "mps"
        dtype = torch.float64 if double else torch.float32
        return _Prepared(
            pixels=self.model.preprocess(resized.permute(2, 0, 1).contiguous()),
            points=torch.from_numpy(points).to(dtype).to(self._device),
            inner=(resized.shape[0], resized.shape[1]),
            size=size,
        )

    def _together(self, images: list[_Prepared]) -> list[_Measured]:
        assert self._decoder is not None
        pixels = torch.stack([image.pixels for image in images])
        mixed = self._dtype != torch.float32
        with torch.autocast(self._device.type, self._dtype, enabled=mixed), _whole_float32():
            embeddings = self._encode(self.model.image_encoder, pixels)
        points = torch.stack([image.points for image in images])
        found: list[list[_Measured]] = [[] for _ in images]
        at_once = _POINTS_AT_ONCE.get(self._device.type, _POINTS_AT_ONCE["cuda"])
        side = self._decoder.prepare(embeddings)
        for block in points.split(max(1, at_once // len(images)), dim=1):
            for own, masks in zip(found, self._block(images, side, block), strict=True):
                own.append(masks)
        return [_joined(own) for own in found]

    def _block(
        self, images: list[_Prepared], side: ImageSide, points: Tensor
    ) -> Iterator[_Measured]:
        """The masks of some points of every image."""
        assert self._decoder is not None
        decoded = self._decoder.decode(side, points)
        wanted = self._wanted(decoded.predicted_iou)  # [I, P, M]
        logits = self._decoder.masks(decoded, wanted)
        counts = wanted.sum(dim=(1, 2)).tolist()
        ious = decoded.predicted_iou[wanted].split(counts)
        for image, own, iou in zip(images, logits.split(counts), ious, strict=True):
            yield self._measured(image, own, iou)

    def _wanted(self, ious: Tensor) -> Tensor:
        """Which masks are good enough; NaN is below every threshold and would pass for none."""
        if not bool(ious.isfinite().all()):
            raise FloatingPointError("SAM answered NaN or infinity")
        return ious > self._thresholds.pred_iou_thresh

    def _exactly(self, images: list[_Prepared]) -> list[_Measured]:
        model = self.model
        found = []
        for image in images:
            embedding = model.image_encoder(image.pixels[None])
            blocks = []
            for points in image.points.split(_EXACT_POINTS_AT_ONCE):
                labels = torch.ones(len(points), 1, dtype=torch.int, device=self._device)
                sparse, dense = model.prompt_encoder(
                    points=(points[:, None], labels), boxes=None, masks=None
                )
                logits, ious = model.mask_decoder(
                    image_embeddings=embedding,
                    image_pe=model.prompt_encoder.get_dense_pe(),
                    sparse_prompt_embeddings=sparse,
                    dense_prompt_embeddings=dense,
                    multimask_output=True,
                )
                wanted = self._wanted(ious)
                blocks.append(self._measured(image, logits[wanted], ious[wanted]))
            found.append(_joined(blocks))
        return found

    def _measured(self, image: _Prepared, logits: Tensor, ious: Tensor) -> _Measured:
        """Stable masks only. logits: [K, h, w]."""
        limit = _PIXELS_AT_ONCE.get(self._device.type, _PIXELS_AT_ONCE["cuda"])
        largest = max(image.size[0] * image.size[1], image.inner[0] * image.inner[1])
        at_once = max(1, limit // largest)
        parts = [
            self._measure(image, some, iou)
            for some, iou in zip(logits.split(at_once), ious.split(at_once), strict=True)
        ]
        return _joined(parts)

    def _measure(self, image: _Prepared, logits: Tensor, ious: Tensor) -> _Measured:
        threshold, offset = self.model.mask_threshold, self._thresholds.stability_score_offset
        if not len(logits):
            return _none(self._device)
        full = self._full_size(image, logits)
        stability = _count(full, threshold + offset) / _count(full, threshold - offset)
        stable = stability >= self._thresholds.stability_score_thresh
        if not bool(stable.all()):  # else nothing need be copied
            full, ious, stability = full[stable], ious[stable], stability[stable]
        if not len(full):
            return _none(self._device)
        return _Measured(
            boxes=_extents(full, threshold),
            ious=ious,
            stability=stability,
            areas=_count(full, threshold),
        )

    def _full_size(self, image: _Prepared, logits: Tensor) -> Tensor:
        """[K, h, w] -> [K, height, width], by way of the encoder's square as published.

        What lies in the padding is not made: the rows and columns that the picture's own pixels
        are interpolated from are enough.
        """
        factor = self.model.image_encoder.img_size // logits.shape[-1]
        rows, columns = (
            min(logits.shape[-1], side // factor + 2) for side in (image.inner[0], image.inner[1])
        )
        square = functional.interpolate(
            logits[None, :, :rows, :columns],
            (rows * factor, columns * factor),
            mode="bilinear",
            align_corners=False,
        )
        inner = square[..., : image.inner[0], : image.inner[1]]
        return functional.interpolate(inner, image.size, mode="bilinear", align_corners=False)[0]

    def _thinned(self, masks: _Measured) -> MaskBoxes:
        """Without those whose box nearly repeats a better one's."""
        from torchvision.ops.boxes import batched_nms

        kept = batched_nms(
            masks.boxes.float(),
            masks.ious,
            torch.zeros(len(masks.boxes), device=masks.boxes.device),
            iou_threshold=self._thresholds.box_nms_thresh,
        )
        ends = torch.tensor([0, 0, 1, 1], device=masks.boxes.device)
        return MaskBoxes(
            boxes=(masks.boxes[kept] + ends).cpu().numpy(),
            predicted_iou=masks.ious[kept].cpu().numpy(),
            stability=masks.stability[kept].cpu().numpy(),
            area_px=masks.areas[kept].cpu().numpy(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """Masks on the device; boxes end at their last pixels, as segment-anything's do."""

    boxes: Tensor
    ious: Tensor
    stability: Tensor
    areas: Tensor


@contextlib.contextmanager
def _whole_float32() -> Iterator[None]:
    """Convolutions in float32 on a GPU, where torch lets cuDNN shorten their mantissa to TF32.

    That would move masks (docs/experiments.md), and most of MobileSAM's encoder is convolutions.
    """
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def _none(device: torch.device) -> _Measured:
    empty = torch.zeros(0, device=device)
    whole = torch.zeros(0, dtype=torch.int32, device=device)
    boxes = torch.zeros(0, 4, dtype=torch.int64, device=device)
    return _Measured(boxes=boxes, ious=empty, stability=empty, areas=whole)


def _joined(parts: Sequence[_Measured]) -> _Measured:
    return _Measured(
        boxes=torch.cat([part.boxes for part in parts]),
        ious=torch.cat([part.ious for part in parts]),
        stability=torch.cat([part.stability for part in parts]),
        areas=torch.cat([part.areas for part in parts]),
    )


def _count(logits: Tensor, threshold: float) -> Tensor:
    """Pixels above a threshold, [K] int32; rows first, in a type that holds a row."""
    return (logits > threshold).sum(-1, dtype=torch.int16).sum(-1, dtype=torch.int32)


def _extents(logits: Tensor, threshold: float) -> Tensor:
    """First and last column and row above the threshold, [K, 4]; zeros for empty masks."""
    columns = (logits.amax(dim=-2) > threshold).int()  # [K, W]
    rows = (logits.amax(dim=-1) > threshold).int()
    width, height = columns.shape[-1], rows.shape[-1]
    boxes = torch.stack(
        [
            columns.argmax(dim=-1),
            rows.argmax(dim=-1),
            width - 1 - columns.flip(-1).argmax(dim=-1),
            height - 1 - rows.flip(-1).argmax(dim=-1),
        ],
        dim=-1,
    )
    return boxes * rows.any(dim=-1, keepdim=True)
