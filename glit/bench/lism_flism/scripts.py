"""LISM and FLISM as the papers' scripts do them: one image after the other.

What is kept of GOAL's LISM script (FLISM's was not published; it follows the same plan with the
detector of FAST-GOAL, section III-A): Pillow opens the image, above 4000 x 3000 pixels SAM sees it
fitted into 2048 x 1536 and the masks are brought back; segment-anything's own automatic masks with
128 points a batch, in float32; masks of 1 % to 80 % of the area; each mask blended over the whole
image and cut at its extent; the whole image a candidate; one call of the CLIP processor with all
crops and all sentences and one of the model, in float32; the best candidate of every sentence; the
image written as JPEG, the chosen crops as PNG, the pairs as JSON.

Where this is kinder than the scripts: CLIP runs on the same device (theirs on the CPU) and is
ViT-B/16 as everywhere here (theirs ViT-L/14 at 336 pixels); a sentence of more than 77 tokens is
cut (theirs fails and skips the image); masks are blended in bytes (theirs in 64-bit integers);
boxes are known (theirs are found again by template matching); sentences come ready-made; images
are turned upright.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from glit.bench.harness import Row
from glit.bench.lism_flism.columns import BenchImages, ColumnJob, PartClock, Way
from glit.bench.lism_flism.fixed import fixed_boxes, rectangles
from glit.bench.scenes import XYXY
from glit.data.geometry import area_ratio_mask, grid_boxes
from glit.data.records import Sample
from glit.models.backends.protocols import ProposerConfig
from glit.models.device import pick_device
from glit.models.tokenizer import load_tokenizer

POINTS_PER_BATCH = 128
"""GOAL's; segment-anything's default is 64."""
_LARGE, _SHRUNK = (4000, 3000), (2048, 1536)


class SamMasks:
    """LISM's candidates: masks, and the whole image."""

    def __init__(self, job: ColumnJob) -> None:
        from segment_anything import SamAutomaticMaskGenerator

        from glit.bench.lism_flism.published_sam import published_sam
        from glit.models.backends.sam.model import load_sam

        sam = load_sam(job.proposer)
        self._config: ProposerConfig = job.recipe.propose
        self._generator = SamAutomaticMaskGenerator(
            published_sam(sam).to(pick_device(job.device)),
            points_per_batch=POINTS_PER_BATCH,
            **asdict(sam.thresholds),
        )

    def propose(self, image: Image.Image) -> list[Any]:
        """Masks of one image."""
        shrunk = image
        if image.width > _LARGE[0] or image.height > _LARGE[1]:
            shrunk = image.copy()
            shrunk.thumbnail(_SHRUNK, Image.Resampling.LANCZOS)
        masks = [found["segmentation"] for found in self._generator.generate(np.array(shrunk))]
        if shrunk.size == image.size:
            return masks
        nearest = Image.Resampling.NEAREST
        return [np.array(Image.fromarray(mask).resize(image.size, nearest)) for mask in masks]

    def fixed(self, image: Image.Image, number: int) -> list[Any]:
        """Made-up candidates in the place of the proposed ones."""
        return rectangles(image.width, image.height, fixed_boxes(*image.size, number))

    def crops(
        self, image: Image.Image, found: list[Any]
    ) -> Iterator[tuple[XYXY | None, Image.Image]]:
        """Every candidate that competes, as box and picture; None for the whole image."""
        yield None, image
        whole = image.width * image.height
        for mask in found:
            if self._config.min_area <= mask.sum() / whole <= self._config.max_area:
                pixels, keep = np.array(image), mask[:, :, None].astype(np.uint8)
                blended = pixels * keep + (1 - keep) * np.array(image)
                rows, columns = np.where(mask)
                x0, x1 = int(columns.min()), int(columns.max()) + 1
                y0, y1 = int(rows.min()), int(rows.max()) + 1
                yield (x0, y0, x1, y1), Image.fromarray(blended[y0:y1, x0:x1])


class YolosBoxes:
    """FLISM's candidates, as above: detected objects, four quadrants and a centre region."""

    def __init__(self, job: ColumnJob) -> None:
        from transformers import YolosForObjectDetection, YolosImageProcessor

        path = str(job.proposer.path)
        self._config: ProposerConfig = job.recipe.propose
        self._device = pick_device(job.device)
        self._processor: Any = YolosImageProcessor.from_pretrained(path, local_files_only=True)
        loaded: Any = YolosForObjectDetection.from_pretrained(path, local_files_only=True)
        self._model: Any = loaded.float().to(self._device).eval()

    def propose(self, image: Image.Image) -> list[Any]:
        import torch

        inputs = self._processor(images=image, return_tensors="pt").to(self._device)
        with torch.no_grad():
            outputs = self._model(**inputs)
        found = self._processor.post_process_object_detection(
            outputs,
            threshold=self._config.score_threshold,
            target_sizes=[(image.height, image.width)],
        )[0]
        limits = [image.width, image.height] * 2
        return list(np.clip(found["boxes"].cpu().numpy(), 0, limits).astype(float))

    def fixed(self, image: Image.Image, number: int) -> list[Any]:
        # the grid comes on top, as in glit
        return list(fixed_boxes(*image.size, number))

    def crops(
        self, image: Image.Image, found: list[Any]
    ) -> Iterator[tuple[XYXY | None, Image.Image]]:
        boxes = np.array(found, dtype=np.float64).reshape(-1, 4)
        fits = area_ratio_mask(
            boxes,
            width=image.width,
            height=image.height,
            min_ratio=self._config.min_area,
            max_ratio=self._config.max_area,
        )
        grid = grid_boxes(width=image.width, height=image.height).values()
        for x0, y0, x1, y1 in [*boxes[fits].tolist(), *grid]:
            yield (x0, y0, x1, y1), image.crop((x0, y0, x1, y1))


class OneAtATime(Way):
    """A method that runs over images, one after the other."""

    def __init__(self, job: ColumnJob) -> None:
        import torch
        from transformers import CLIPImageProcessor, CLIPModel, CLIPProcessor
        from transformers.utils import logging

        logging.disable_progress_bar()
        logging.set_verbosity_error()
        torch.set_num_threads(job.threads)
        self._job = job
        self._device = pick_device(job.device)
        self._proposer = SamMasks(job) if job.column.method == "lism" else YolosBoxes(job)
        path = str(job.matcher.path)
        clip: Any = CLIPModel.from_pretrained(path, local_files_only=True)
        self._clip: Any = clip.float().to(self._device).eval()
        self._context = int(self._clip.config.text_config.max_position_embeddings)
        pictures: Any = CLIPImageProcessor.from_pretrained(path, local_files_only=True)
        self._processor: Any = CLIPProcessor(pictures, load_tokenizer(job.matcher.path))

    def run(self, batch: BenchImages) -> Row:
        """All images of a batch, one after the other."""
        clock, num_regions = PartClock(), 0
        choices = []
        for sample in batch.samples:
            path = batch.store.full(sample.source_path)
            with clock.part("wait"), Image.open(path) as file:
                image = ImageOps.exif_transpose(file).convert("RGB")
            with clock.part("propose"):
                found = self._proposer.propose(image)
            if self._job.num_fixed is not None:
                found = self._proposer.fixed(image, self._job.num_fixed)
            texts = [sentence.text for sentence in sample.sentences or ()]
            with clock.part("encode"):
                candidates = list(self._proposer.crops(image, found))
                similarity = self._similarity([crop for _, crop in candidates], texts)
            num_regions += sum(box is not None for box, _ in candidates)
            with clock.part("match"):
                best = [int(similarity[:, column].argmax()) for column in range(len(texts))]
            with clock.part("write"):
                self._write(sample, image, candidates, best, similarity)
            choices.append(tuple(candidates[index][0] for index in best))
        return {
            "parts_s": clock.seconds,
            "num_regions": num_regions,
            "num_dropped": 0,
            "choices": tuple(choices),
        }

    def _similarity(self, crops: list[Image.Image], texts: list[str]) -> np.ndarray:
        """CLIP's logits, [crops, sentences]."""
        import torch

        inputs = self._processor(
            text=texts,
            images=crops,
            return_tensors="pt",
            padding=True,
            truncation=True,
            max_length=self._context,
        ).to(self._device)
        with torch.no_grad():
            return self._clip(**inputs).logits_per_image.cpu().numpy()

    def _write(
        self,
        sample: Sample,
        image: Image.Image,
        candidates: list[tuple[XYXY | None, Image.Image]],
        best: list[int],
        similarity: np.ndarray,
    ) -> None:
        """The image as JPEG, the chosen crops as PNG, the pairs as JSON, in a folder an image."""
        folder = self._job.scratch / sample.sample_id
        folder.mkdir(parents=True, exist_ok=True)
        image.save(folder / "original.jpg")
        names: dict[int, str] = {}
        for index in set(best):
            box, crop = candidates[index]
            names[index] = "original.jpg" if box is None else f"region-{index}.png"
            if box is not None:
                crop.save(folder / names[index])
        sentences = sample.sentences or ()
        pairs = [
            {
                "sentence": sentences[column].text,
                "image": names[index],
                "similarity": float(similarity[index, column]),
            }
            for column, index in enumerate(best)
        ]
        (folder / "pairs.json").write_text(json.dumps(pairs, indent=2), encoding="utf-8")
