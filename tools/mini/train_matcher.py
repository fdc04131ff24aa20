"""Train the mini matcher, a small CLIP, on procedural scenes.

``python -m tools.mini.train_matcher --run build/mini/matcher``

Three tasks share every step: sentence to crop (object sentences against crops of objects, half of
the batches of one colour; background and light sentences against quadrants), short caption to
whole scene, and, as help for the vision tower, attributes of every patch and every crop.
Long captions are left out on purpose: learning them is what fine-tuning is for.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoModel, CLIPConfig, CLIPModel, CLIPTokenizer

from glit.clip.random_clip import write_clip_tokenizer
from glit.scenes import draw_scene, write_caption
from glit.scenes.captions import short_caption
from glit.scenes.vocabulary import BACKGROUNDS, LIGHTS
from tools.mini.crops import Crop, draw_crops, to_tensor, true_pairs
from tools.mini.heads import DenseHead, ValuesHead, accuracy, grid_points, sine_positions
from tools.mini.loop import LossAndMetrics, Training, TrainSettings, run_trainer
from tools.mini.pool import (
    ATTRIBUTES,
    IMAGE_PX,
    PATCH_PX,
    POOL_SEED,
    Painted,
    load_pool,
    pool_scene,
)
from tools.mini.save import save_clip

DEFAULTS = TrainSettings(steps=2400, lr=1.0e-3, warmup=150)

_NUM_SCENES = 24
_NUM_OBJECT_CROPS = 64
_NUM_REGION_CROPS = 20
_FIRST_LOGIT_SCALE = 2.7
_NUM_CAPTIONS = 3000
_NUM_MERGES = 700
CONTEXT = 77


def matcher_config(vocabulary_size: int) -> CLIPConfig:
    """The mini matcher's shape: vision 192 wide, 6 layers, patch 16; text 128 wide, 4 layers."""
    last = vocabulary_size - 1
    return CLIPConfig(
        projection_dim=128,
        logit_scale_init_value=_FIRST_LOGIT_SCALE,
        text_config={
            "vocab_size": vocabulary_size,
            "hidden_size": 128,
            "hidden_act": "gelu",
            "intermediate_size": 384,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "max_position_embeddings": CONTEXT,
            "projection_dim": 128,
            "bos_token_id": last - 1,
            "eos_token_id": last,
            "pad_token_id": last,
        },
        vision_config={
            "hidden_size": 192,
            "hidden_act": "gelu",
            "intermediate_size": 512,
            "num_hidden_layers": 6,
            "num_attention_heads": 4,
            "image_size": IMAGE_PX,
            "patch_size": PATCH_PX,
            "projection_dim": 128,
        },
    )


class ClipTraining(Training):
    """A CLIP that reads scenes of the pool; nothing of it is thrown away after training."""

    def __init__(self, pool: Painted, tokenizer: CLIPTokenizer) -> None:
        super().__init__()
        self.pool, self.tokenizer = pool, tokenizer
        self.clip: CLIPModel = AutoModel.from_config(
            matcher_config(len(tokenizer)), attn_implementation="eager"
        )
        positions = self.clip.vision_model.embeddings.position_embedding.weight
        with torch.no_grad():
            grid = grid_points(IMAGE_PX // PATCH_PX)
            positions[1:] = 0.5 * sine_positions(grid, positions.shape[1])

    def embedded(self, images: np.ndarray, texts: list[str]) -> tuple[Any, Tensor, Tensor]:
        """What the vision tower answers, and embeddings of images and texts, ``[N, E]`` each."""
        seen = self.clip.vision_model(pixel_values=to_tensor(images))
        read = self.clip.text_model(**self.tokenizer(texts, padding=True, return_tensors="pt"))
        image_NE = self.clip.visual_projection(seen.pooler_output).float()
        text_NE = self.clip.text_projection(read.pooler_output).float()
        return seen, functional.normalize(image_NE, dim=-1), functional.normalize(text_NE, dim=-1)

    def scaled(self, text_NE: Tensor, image_NE: Tensor) -> Tensor:
        """Cosines of texts and images times the learned scale, ``[N, N]``."""
        return self.clip.logit_scale.exp().clamp(max=100) * text_NE @ image_NE.T

    def export(self, folder: Path) -> None:
        """The model, its tokenizer and its image processor."""
        save_clip(self.clip, self.tokenizer, folder)


class MatcherTraining(ClipTraining):
    """The model and the heads that only training needs."""

    def __init__(self, pool: Painted, tokenizer: CLIPTokenizer) -> None:
        super().__init__(pool, tokenizer)
        vision: Any = self.clip.config.vision_config
        self.dense = DenseHead(vision.hidden_size)
        self.setting = ValuesHead(vision.hidden_size, [len(BACKGROUNDS), len(LIGHTS)])
        seen_in_crops = [len(values) for values in ATTRIBUTES.values()][:3]
        self.crop = ValuesHead(vision.hidden_size, seen_in_crops)

    def loss(self, rng: np.random.Generator, step: int) -> LossAndMetrics:
        """Crops against sentences, scenes against short captions, attributes."""
        pool = self.pool
        crops = draw_crops(
            pool,
            rng,
            num_objects=_NUM_OBJECT_CROPS,
            num_regions=_NUM_REGION_CROPS,
            one_colour=step % 2 == 1,
        )
        indices = rng.choice(len(pool), size=_NUM_SCENES, replace=False)
        words = random.Random(int(rng.integers(2**62)))
        texts = [short_caption(pool_scene(int(i)), words) for i in indices]
        texts += [crop.text for crop in crops]
        images = np.concatenate([pool.pixels[indices], np.stack([crop.pixels for crop in crops])])
        seen, image_BE, text_BE = self.embedded(images, texts)
        loss, metrics = self._contrastive(image_BE, text_BE, crops)
        more, seen_metrics = self._attributes(seen, crops, indices)
        return loss + more, seen_metrics | metrics

    def _contrastive(self, image_BE: Tensor, text_BE: Tensor, crops: list[Crop]) -> LossAndMetrics:
        """Scenes against short captions plus crops against sentences; scenes come first."""
        n = _NUM_SCENES
        scenes_SS = self.scaled(text_BE[:n], image_BE[:n])
        crops_CC = self.scaled(text_BE[n:], image_BE[n:])
        scene_loss = contrastive_loss(scenes_SS, torch.zeros(n, n, dtype=torch.bool))
        crop_loss = contrastive_loss(crops_CC, torch.from_numpy(true_pairs(crops)))
        return crop_loss + scene_loss, {
            "crop_loss": float(crop_loss.detach()),
            "scene_loss": float(scene_loss.detach()),
            "scene_r1": accuracy(scenes_SS, torch.arange(n)),
        }

    def _attributes(self, seen: Any, crops: list[Crop], indices: np.ndarray) -> LossAndMetrics:
        """What patches of scenes, scenes and object crops show."""
        n, pool = _NUM_SCENES, self.pool
        dense, metrics = self.dense(
            seen.last_hidden_state[:n, 1:],
            torch.from_numpy(pool.patch_objects[indices]),
            torch.from_numpy(pool.attributes[indices]),
        )
        settings = torch.from_numpy(pool.settings[indices])
        setting, _ = self.setting(seen.pooler_output[:n], settings)
        attributes = np.stack([crop.attributes[:3] for crop in crops[:_NUM_OBJECT_CROPS]])
        of_crops, (shape, *_) = self.crop(
            seen.pooler_output[n : n + _NUM_OBJECT_CROPS], torch.from_numpy(attributes)
        )
        return dense + 0.2 * setting + 0.3 * of_crops, metrics | {"crop_shape": shape}


def contrastive_loss(similarity: Tensor, also_true: Tensor) -> Tensor:
    """InfoNCE both ways with the own pair as target and other true pairs left out (CLIP, sec. 2.3).

    :param similarity: scaled cosines ``[N, N]``
    :param also_true: bool ``[N, N]``; the diagonal does not matter
    """
    number = similarity.shape[0]
    own = torch.eye(number, dtype=torch.bool)
    kept = similarity.masked_fill(also_true & ~own, float("-inf"))
    targets = torch.arange(number)
    return (functional.cross_entropy(kept, targets) + functional.cross_entropy(kept.T, targets)) / 2


def caption_texts() -> Iterator[str]:
    """Captions the vocabulary is trained on: training scenes of all three levels."""
    for index in range(_NUM_CAPTIONS):
        for level in ("easy", "normal", "hard"):
            caption = write_caption(draw_scene(POOL_SEED, index, level=level))
            yield from (caption.text, caption.short)


def clip_tokenizer(folder: Path) -> CLIPTokenizer:
    """A byte-level BPE with its own small vocabulary, written to ``folder`` and read back."""
    write_clip_tokenizer(folder, caption_texts(), 512 + _NUM_MERGES, model_max_length=CONTEXT)
    learned = json.loads((folder / "tokenizer.json").read_text("utf-8"))["model"]
    lines = ["#version: 0.2", *(" ".join(pair) for pair in learned["merges"])]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    vocabulary = json.dumps(learned["vocab"], ensure_ascii=False)
    (folder / "vocab.json").write_text(vocabulary, "utf-8")
    return CLIPTokenizer.from_pretrained(folder)


def main() -> None:
    """Train and export; run again to resume."""
    parser = argparse.ArgumentParser(description="train the mini matcher")
    run_trainer(
        parser,
        DEFAULTS,
        lambda words: MatcherTraining(load_pool(), clip_tokenizer(words.run / "tokenizer")),
    )


if __name__ == "__main__":
    main()
