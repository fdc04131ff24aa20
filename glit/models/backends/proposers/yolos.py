"""YOLOS by transformers, with its own resizing and post-processing.

YOLOS takes no pixel mask, so padding an image would change its boxes: only images with equal
shapes after resizing share a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from glit.data.records import Region
from glit.images import Pixels
from glit.models.backends.base import Backend, refuse_other_kind
from glit.models.backends.proposers.regions import make_regions
from glit.models.backends.protocols import ProposerConfig
from glit.models.device import pick_device, torch_dtype
from glit.models.gpu.convolutions import no_tf32_convolutions
from glit.models.pretrained import as_weights_error, load_whole
from glit.models.weights import Resolved
from glit.recipes.extras import require
from glit.runtime.prefetch import batched

_SIZES_KEPT = 4

if TYPE_CHECKING:
    from glit.models.gpu.copies import Download


class YolosDetector:
    """A ``YolosForObjectDetection`` and its image processor."""

    def __init__(self, config: ProposerConfig, model: Resolved) -> None:
        config = YOLOS.settled(config)
        require("models", needed_for="propose.backend = 'yolos'")
        import torch
        from transformers import YolosForObjectDetection, YolosImageProcessor

        from glit.models.int8 import use_int8
        from glit.models.onednn import use_onednn

        self._torch = torch
        self._config = config
        self._device = pick_device(config.device)
        self._dtype = torch_dtype(config.precision)
        with as_weights_error(f"model {model.name!r}: cannot be loaded as YOLOS"):
            self.processor: Any = YolosImageProcessor.from_pretrained(
                str(model.path), local_files_only=True
            )
            loaded = load_whole(
                YolosForObjectDetection, model.path, local_files_only=True, dtype=self._dtype
            )
        self.model = loaded.to(self._device).eval()
        _remember_positions(self.model)
        if config.precision == "int8":
            use_int8(self.model.vit)
        use_onednn(self.model)
        self._labels = self.model.config.id2label
        self._patch = self.model.config.patch_size

    def detect(self, images: Sequence[Pixels]) -> list[list[Region]]:
        from glit.models.gpu.copies import lag_by_one

        inputs = [None if self._too_thin(image) else self.prepare(image) for image in images]
        shapes: dict[tuple[int, ...], list[int]] = {}
        for index, pixels in enumerate(inputs):
            if pixels is not None:
                shapes.setdefault(tuple(pixels.shape), []).append(index)
        batches = [
            batch
            for indices in shapes.values()
            for batch in batched(indices, self._config.batch_size)
        ]
        found: list[list[Region]] = [[] for _ in images]
        # read one batch late: a GPU is at the next while this process reads
        answers = lag_by_one((batch, self._run([inputs[i] for i in batch])) for batch in batches)
        for batch, answer in answers:
            sizes = [images[index].shape[:2] for index in batch]
            for index, detections in zip(batch, self._read(answer, sizes), strict=True):
                found[index] = self._regions(detections, images[index])
        return found

    def _too_thin(self, image: Pixels) -> bool:
        """Return whether the shorter side would be resized to less than a patch: nothing is
        detected."""
        longest = self.processor.size.get("longest_edge")
        short, long = sorted(image.shape[:2])
        return longest is not None and longest * short / long < self._patch

    def prepare(self, image: Pixels) -> Any:
        """Normalised pixels of one image, [3, height, width], by the model's image processor."""
        from glit.models.gpu.copies import upload_image

        chw = upload_image(image, self._device)
        batch = self.processor(images=chw, do_pad=False, return_tensors="pt", device=self._device)
        return batch["pixel_values"][0]

    def _run(self, inputs: list[Any]) -> Download:
        """Logits and boxes of a batch, side by side."""
        from glit.models.gpu.copies import Download

        torch = self._torch
        with torch.inference_mode(), no_tf32_convolutions():
            outputs = self.model(pixel_values=torch.stack(inputs).to(self._dtype))
            answers = [outputs.logits.float(), outputs.pred_boxes.float()]
            return Download(torch.cat(answers, dim=-1))

    def _read(self, answer: Download, sizes: list[Any]) -> list[dict[str, Any]]:
        both = answer.wait()
        logits, boxes = both.split([both.shape[-1] - 4, 4], dim=-1)
        if not bool(logits.isfinite().all()):  # NaN would give no detections
            raise FloatingPointError("YOLOS answered NaN or infinity")
        return self.processor.post_process_object_detection(
            SimpleNamespace(logits=logits, pred_boxes=boxes),
            threshold=self._config.score_threshold,
            target_sizes=self._torch.tensor(sizes),
        )

    def _regions(self, detections: dict[str, Any], image: Pixels) -> list[Region]:
        labels = detections["labels"].tolist()
        return make_regions(
            detections["boxes"].numpy(),
            detections["scores"].numpy(),
            [str(self._labels.get(label, label)) for label in labels],
            width=image.shape[1],
            height=image.shape[0],
            source="yolos",
        )


def _remember_positions(model: Any) -> None:
    """Interpolate position embeddings once per size of image instead of once per batch, in place.

    Those of YOLOS-base took a core 258 ms, and were behind 95 ms of every batch on an H200
    (docs/gpu.md). A few sizes are kept, of 50 to 150 MB each.
    """
    embeddings, encoder = model.vit.embeddings, model.vit.encoder
    remember = lru_cache(maxsize=_SIZES_KEPT)
    plain = embeddings.interpolation.forward
    of_size = remember(lambda size: plain(embeddings.position_embeddings, size))
    embeddings.interpolation.forward = lambda _, size: of_size(size)
    if encoder.interpolation is not None:
        encoder.interpolation.forward = remember(encoder.interpolation.forward)


def _check(config: ProposerConfig, model: Resolved | None) -> None:
    refuse_other_kind(model, {"yolos"}, loads="propose.backend = 'yolos' loads YOLOS")


YOLOS = Backend(
    make=YolosDetector, gpu_bytes=8 << 30, extras=("models",), check=_check, has_int8=True
)
