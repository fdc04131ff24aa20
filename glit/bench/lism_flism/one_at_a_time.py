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
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from glit.backends.device import pick_device
from glit.backends.tokenizer import load_tokenizer
from glit.bench.lism_flism.candidates import Proposer, SamMasks, YolosBoxes
from glit.bench.lism_flism.clock import PartClock
from glit.bench.lism_flism.job import CROP, PARTS, XYXY, Batch, Facts, Job, Result
from glit.bench.lism_flism.operations import clip_crop, count_parameters
from glit.data.records import Sample


class OneAtATime:
    """One method over images, one after the other."""

    def __init__(self, job: Job) -> None:
        import torch
        from transformers import CLIPImageProcessor, CLIPModel, CLIPProcessor
        from transformers.utils import logging

        logging.disable_progress_bar()
        logging.set_verbosity_error()
        torch.set_num_threads(job.threads)
        self._job = job
        self._device = pick_device(job.device)
        self._proposer: Proposer = SamMasks(job) if job.column.method == "lism" else YolosBoxes(job)
        path = str(job.matcher.path)
        clip: Any = CLIPModel.from_pretrained(path, local_files_only=True)
        self._clip: Any = clip.float().to(self._device).eval()
        self._context = int(self._clip.config.text_config.max_position_embeddings)
        pictures: Any = CLIPImageProcessor.from_pretrained(path, local_files_only=True)
        self._processor: Any = CLIPProcessor(pictures, load_tokenizer(job.matcher.path))

    def facts(self) -> Facts:
        """Parameters and operations of the models."""
        samples = self._job.batch.samples
        sizes = {(sample.width, sample.height): sample for sample in samples}
        of_size = {size: self._proposer.operations(sample) for size, sample in sizes.items()}
        each = [of_size[sample.width, sample.height] for sample in samples]
        operations = {part: float(np.mean([one[part] for one in each])) for part in each[0]}
        return Facts(
            parameters={
                "proposer": count_parameters(self._proposer.model),
                "clip": count_parameters(self._clip),
            },
            operations=operations | {CROP: clip_crop(self._clip.config.vision_config)},
        )

    def run(self, batch: Batch) -> Result:
        """All images of a batch, one after the other."""
        clock = PartClock(PARTS)
        num_proposed = num_regions = 0
        choices = []
        for sample in batch.samples:
            path = batch.images.full(sample.source_path)
            with clock.part("wait"), Image.open(path) as file:
                image = ImageOps.exif_transpose(file).convert("RGB")
            with clock.part("propose"):
                found = self._proposer.propose(image)
            num_proposed += len(found)
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
        return Result(
            parts_s=clock.seconds,
            decode_s=clock.seconds["wait"],
            num_proposed=num_proposed,
            num_regions=num_regions,
            num_dropped=0,
            choices=tuple(choices),
        )

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
        names = {
            index: "original.jpg" if candidates[index][0] is None else f"region-{index}.png"
            for index in set(best)
        }
        for index, name in names.items():
            if candidates[index][0] is not None:
                candidates[index][1].save(folder / name)
        pairs = [
            {
                "sentence": sentence.text,
                "image": names[index],
                "similarity": float(similarity[index, column]),
            }
            for column, (sentence, index) in enumerate(
                zip(sample.sentences or (), best, strict=True)
            )
        ]
        (folder / "pairs.json").write_text(json.dumps(pairs, indent=2), encoding="utf-8")
