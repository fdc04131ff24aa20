"""Automatic masks as boxes: a grid of point prompts, filtered by predicted IoU and stability score.

Steps and settings are those of segment-anything's ``SamAutomaticMaskGenerator`` without crops
(Segment Anything, Kirillov et al. 2023, section B). For throughput, points of several images share
decoder batches; mask logits are computed only for masks above the predicted-IoU threshold, no mask
is run-length encoded, and only boxes, scores and areas leave the device. The encoder takes one
image at a time: each layer of global attention writes a bias of [heads, 4096, 4096].

``exact`` runs the decoder of transformers instead, in the batches of ``SamAutomaticMaskGenerator``.

Shape suffixes:
    I  images
    P  point prompts of each image
    M  masks of a point: 3 (``multimask_output``)
    K  masks of one image
    S  side of the encoder's square input, in pixels
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from PIL import Image
from torch import Tensor
from torch.nn import functional

from glit.data.rle import encode_rle
from glit.images import Pixels
from glit.models.backends.sam.checks import decoder_agrees
from glit.models.backends.sam.decoder import (
    Decoded,
    PointDecoder,
    ProjectedImages,
    numbers_of,
    plain_decoder,
)
from glit.models.backends.sam.masks import (
    Masks,
    area_px,
    concatenate,
    mask_to_box,
    no_masks,
    upscale,
)
from glit.models.backends.sam.model import Sam
from glit.models.gpu.convolutions import no_tf32_convolutions
from glit.models.gpu.copies import Download, lag_by_one, upload

_MASK_THRESHOLD = 0.0
"""In logits: a mask is what is above."""
_POINTS_PER_BATCH = {"cpu": 16, "cuda": 128}
"""Points of one decoder batch, all images together."""
_EXACT_POINTS_PER_BATCH = 64
"""The default ``points_per_batch`` of ``SamAutomaticMaskGenerator``; rounding depends on it."""
_PIXELS_PER_BATCH = {"cpu": 1 << 22, "cuda": 1 << 28}
"""Pixels of the masks that are upscaled and filtered together."""
_IMAGES_PER_BATCH = {"cpu": 1}
"""Images that share decoder batches; all that are given on devices that are not listed. On a CPU a
batch is no faster and needs the memory of all its images, and one image gives the same bytes
whatever images are given with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskBoxes:
    """The automatic masks of one image, highest predicted IoU first."""

    boxes: Int[np.ndarray, "K 4"]
    """x0, y0, x1, y1 in the image's pixels, exclusive ends."""
    predicted_iou: Float[np.ndarray, " K"]
    stability_score: Float[np.ndarray, " K"]
    area_px: Int[np.ndarray, " K"]
    """Pixels of the mask."""
    runs: Sequence[list[int]] = ()
    """The masks as run lengths, where they are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedImage:
    """An image and its grid of points, ready for the model."""

    pixels_3SS: Tensor
    """Normalised, padded on the right and below."""
    points_P2: Tensor
    """x and y in pixels of the encoder's input."""
    size: tuple[int, int]
    """Height and width of the image."""


class AutomaticMasks:
    """Boxes of all masks of images.

    Args:
        sam: its model is on its device.
        exact: transformers' own modules, image by image, in float32.
        dtype: of the matrix products; not with ``exact``.
        compiled: run the image encoder through ``torch.compile``.
        keep_masks: give the masks as run lengths too.
    """

    def __init__(
        self,
        sam: Sam,
        *,
        exact: bool = False,
        dtype: torch.dtype = torch.float32,
        compiled: bool = False,
        keep_masks: bool = False,
    ) -> None:
        self.model = sam.model
        self._side = sam.side
        self._thresholds = sam.thresholds
        self._exact = exact or not decoder_agrees(sam.model)
        self._dtype = dtype
        self._device = sam.model.device
        self._keep = keep_masks
        line = (np.arange(sam.thresholds.points_per_side) + 0.5) / sam.thresholds.points_per_side
        self._point_grid_P2 = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
        self._mean_311, self._std_311 = (
            torch.tensor(each, dtype=torch.float32, device=self._device).view(-1, 1, 1)
            for each in (sam.pixel_mean, sam.pixel_std)
        )
        with torch.inference_mode():
            self._decoder = None if self._exact else PointDecoder(sam.model, dtype)
        encoder: Any = sam.model.vision_encoder
        self._encoder: Any = torch.compile(encoder) if compiled else encoder

    def __call__(self, images: Sequence[Pixels]) -> list[MaskBoxes]:
        """The masks of each image; none for an image whose shorter side would be resized to zero
        pixels.

        Raises:
            FloatingPointError: the model predicted NaN or infinity.
        """
        usable = [
            index for index, image in enumerate(images) if min(self._resized(image.shape)) > 0
        ]
        masks = [no_masks(self._device)] * len(images)
        batch_size = max(1, _IMAGES_PER_BATCH.get(self._device.type, len(images)))
        generate = self._generate_exact if self._exact else self._generate
        with torch.inference_mode():
            for start in range(0, len(usable), batch_size):
                batch = usable[start : start + batch_size]
                generated = generate([self.prepare(images[index]) for index in batch])
                for index, image_masks in zip(batch, generated, strict=True):
                    masks[index] = image_masks
            return [
                self._non_maximum_suppression(each, image)
                for each, image in zip(masks, images, strict=True)
            ]

    def _resized(self, size: Sequence[int]) -> tuple[int, int]:
        """Height and width in the encoder's input, before padding, of an image of that size."""
        scale = self._side / max(size[:2])
        return int(size[0] * scale + 0.5), int(size[1] * scale + 0.5)

    def prepare(self, image: Pixels) -> PreparedImage:
        """Resize an image's longer side to the encoder's input, normalise it, and lay the grid of
        points over it."""
        height, width = self._resized(image.shape)
        bilinear = Image.Resampling.BILINEAR
        resized = np.array(Image.fromarray(image).resize((width, height), bilinear))
        pixels_HW3 = upload(torch.from_numpy(resized), self._device)
        pixels_3HW = (pixels_HW3.permute(2, 0, 1) - self._mean_311) / self._std_311
        return PreparedImage(
            pixels_3SS=functional.pad(pixels_3HW, (0, self._side - width, 0, self._side - height)),
            points_P2=torch.from_numpy(self._point_grid_P2 * [width, height])
            .float()
            .to(self._device),
            size=(image.shape[0], image.shape[1]),
        )

    def _generate(self, images: list[PreparedImage]) -> list[Masks]:
        """The masks of each image before non-maximum suppression, in shared batches."""
        assert self._decoder is not None
        mixed = self._dtype != torch.float32
        with torch.autocast(self._device.type, self._dtype, enabled=mixed), no_tf32_convolutions():
            embedding = torch.cat([self._encode(image) for image in images])
        points_IP2 = torch.stack([image.points_P2 for image in images])
        masks: list[list[Masks]] = [[] for _ in images]
        batch_size = _POINTS_PER_BATCH.get(self._device.type, _POINTS_PER_BATCH["cuda"])
        projected = self._decoder.project_images(embedding)
        batches = points_IP2.split(max(1, batch_size // len(images)), dim=1)
        decoded = (self._decode(projected, batch) for batch in batches)
        if self._device.type == "cuda":  # is at the next batch while this process reads scores
            decoded = lag_by_one(decoded)
        for batch, scores in decoded:
            for parts, part in zip(masks, self._masks(images, batch, scores), strict=True):
                parts.append(part)
        return [concatenate(parts) for parts in masks]

    def _encode(self, image: PreparedImage) -> Tensor:
        """The image embedding [1, C, h, w]."""
        return self._encoder(image.pixels_3SS[None]).last_hidden_state

    def _decode(self, projected: ProjectedImages, points_IP2: Tensor) -> tuple[Decoded, Download]:
        """Decode one batch of points; its predicted IoUs are on their way here."""
        assert self._decoder is not None
        decoded = self._decoder.decode(projected, points_IP2)
        return decoded, Download(decoded.predicted_iou_IPM)

    def _masks(
        self, images: list[PreparedImage], decoded: Decoded, scores: Download
    ) -> Iterator[Masks]:
        """The masks of one batch of points, for each image."""
        assert self._decoder is not None
        selected_IPM = self._above_iou_threshold(scores.wait())
        logits = self._decoder.mask_logits(decoded, selected_IPM)
        counts = selected_IPM.sum(dim=(1, 2)).tolist()
        numbers = numbers_of(selected_IPM, self._device)
        predicted_iou = decoded.predicted_iou_IPM.flatten()[numbers].split(counts)
        for image, logits_Khw, iou_K in zip(
            images, logits.split(counts), predicted_iou, strict=True
        ):
            yield self._filter_and_box(image, logits_Khw, iou_K)

    def _above_iou_threshold(self, predicted_iou: Tensor) -> Tensor:
        """Return which masks to keep, on the CPU: how many there are shapes all that follows. NaN
        is above no threshold and would look like "no masks"."""
        predicted_iou = predicted_iou.cpu()
        if not bool(predicted_iou.isfinite().all()):
            raise FloatingPointError("SAM answered NaN or infinity")
        return predicted_iou > self._thresholds.pred_iou_thresh

    def _generate_exact(self, images: list[PreparedImage]) -> list[Masks]:
        """Generate masks as :meth:`_generate`, by transformers' modules in the published
        batches."""
        masks = []
        for image in images:
            embedding = self._encode(image)
            batches = []
            for points_P2 in image.points_P2.split(_EXACT_POINTS_PER_BATCH):
                logits_PMhw, predicted_iou_PM = plain_decoder(self.model, embedding, points_P2)
                selected_PM = self._above_iou_threshold(predicted_iou_PM)
                numbers = numbers_of(selected_PM, self._device)
                logits_Khw = logits_PMhw.flatten(0, 1)[numbers]
                iou_K = predicted_iou_PM.flatten()[numbers]
                batches.append(self._filter_and_box(image, logits_Khw, iou_K))
            masks.append(concatenate(batches))
        return masks

    def _filter_and_box(
        self, image: PreparedImage, logits_Khw: Tensor, predicted_iou_K: Tensor
    ) -> Masks:
        """Masks of the image's size, a few at a time to bound the memory; on a CPU only those above
        the stability-score threshold."""
        limit = _PIXELS_PER_BATCH.get(self._device.type, _PIXELS_PER_BATCH["cuda"])
        mask_px = max(math.prod(image.size), math.prod(self._resized(image.size)))
        batch_size = max(1, limit // mask_px)
        batches = zip(logits_Khw.split(batch_size), predicted_iou_K.split(batch_size), strict=True)
        return concatenate([self._filter_batch(image, *batch) for batch in batches])

    def _filter_batch(
        self, image: PreparedImage, logits_Khw: Tensor, predicted_iou_K: Tensor
    ) -> Masks:
        threshold, offset = _MASK_THRESHOLD, self._thresholds.stability_score_offset
        if not len(logits_Khw):
            return no_masks(self._device)
        logits = self._upscaled(logits_Khw, image.size)
        stability_score_K = area_px(logits, threshold + offset) / area_px(
            logits, threshold - offset
        )
        stable_K = self._is_stable(stability_score_K)
        # elsewhere to ask is to wait: unstable masks go at the end, all at once
        if self._device.type == "cpu" and not bool(stable_K.all()):  # else nothing need be copied
            logits, logits_Khw = logits[stable_K], logits_Khw[stable_K]
            predicted_iou_K = predicted_iou_K[stable_K]
            stability_score_K = stability_score_K[stable_K]
        if not len(logits):
            return no_masks(self._device)
        return Masks(
            boxes_K4=mask_to_box(logits, threshold),
            predicted_iou_K=predicted_iou_K,
            stability_score_K=stability_score_K,
            area_px_K=area_px(logits, threshold),
            logits_Khw=logits_Khw if self._keep else None,
        )

    def _is_stable(self, stability_score_K: Tensor) -> Tensor:
        """False for NaN as well, the score of a mask without a pixel."""
        return stability_score_K >= self._thresholds.stability_score_thresh

    def _upscaled(self, logits_Khw: Tensor, size: tuple[int, int]) -> Tensor:
        """Mask logits [K, height, width] of an image of that size."""
        factor = self._side // logits_Khw.shape[-1]
        return upscale(
            logits_Khw, factor=factor, input_size=self._resized(size), original_size=size
        )

    def _runs(self, masks: Masks, image: Pixels) -> list[list[int]]:
        """Run lengths of the masks that are kept, one upscaled at a time."""
        if masks.logits_Khw is None:
            return []
        size = (image.shape[0], image.shape[1])
        full = (self._upscaled(one[None], size)[0] for one in masks.logits_Khw)
        return [encode_rle((each > _MASK_THRESHOLD).numpy()) for each in full]

    def _non_maximum_suppression(self, masks: Masks, image: Pixels) -> MaskBoxes:
        """On the CPU, of the stable masks alone."""
        from torchvision.ops import nms

        masks = masks.cpu()
        masks = masks[self._is_stable(masks.stability_score_K)]
        most = self._thresholds.box_nms_thresh
        masks = masks[nms(masks.boxes_K4.float(), masks.predicted_iou_K, most)]
        return MaskBoxes(
            boxes=(masks.boxes_K4 + torch.tensor([0, 0, 1, 1])).numpy(),
            predicted_iou=masks.predicted_iou_K.numpy(),
            stability_score=masks.stability_score_K.numpy(),
            area_px=masks.area_px_K.numpy(),
            runs=self._runs(masks, image),
        )
