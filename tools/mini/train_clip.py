"""Train the mini CLIP that fine-tuning starts from: whole pictures and short captions alone.

``python -m tools.mini.train_clip --run build/mini/clip``

A start like the papers': it has met pictures at every scale, since every other picture is a
close-up whose one object fills most of it, but no crop, no region, no attribute of a patch and
no long caption. What a fine-tune on a dataset teaches it is then the dataset's doing, which the
mini matcher, trained on regions, cannot show.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import replace

import numpy as np
import torch
from transformers import CLIPTokenizer

from glit.recipes.resources import mini_model
from glit.scenes import Scene, draw_scene, render
from glit.scenes.captions import short_caption
from tools.mini.heads import accuracy
from tools.mini.loop import LossAndMetrics, TrainSettings, run_trainer
from tools.mini.pool import IMAGE_PX, POOL_SCENES, POOL_SEED, load_pool, pool_scene
from tools.mini.train_matcher import ClipTraining, contrastive_loss

DEFAULTS = TrainSettings(steps=1600, lr=1.0e-3, warmup=150)

_NUM_SCENES = 40
_NUM_CLOSE_UPS = 24
_CLOSE_UP_SIDE = (0.5, 0.98)
"""Range of a close-up's object, as a fraction of the picture."""


class WholePictureTraining(ClipTraining):
    """CLIP's own loss, pictures against their short captions."""

    def loss(self, rng: np.random.Generator, step: int) -> LossAndMetrics:
        """Of scenes of the pool and of close-ups."""
        indices = rng.choice(len(self.pool), size=_NUM_SCENES, replace=False)
        near = [close_up(rng) for _ in range(_NUM_CLOSE_UPS)]
        scenes = [pool_scene(int(i)) for i in indices] + near
        painted = [render(scene, size_px=IMAGE_PX).pixels for scene in near]
        images = np.concatenate([self.pool.pixels[indices], np.stack(painted)])
        words = random.Random(int(rng.integers(2**62)))
        texts = [short_caption(scene, words) for scene in scenes]
        _, image_BE, text_BE = self.embedded(images, texts)
        scaled_BB = self.scaled(text_BE, image_BE)
        loss = contrastive_loss(scaled_BB, torch.from_numpy(same_words(scenes)))
        return loss, {"r1": accuracy(scaled_BB, torch.arange(len(scenes)))}


def close_up(rng: np.random.Generator) -> Scene:
    """A training scene whose single object fills half of the picture or more."""
    index = int(rng.integers(POOL_SCENES, 2**40))
    scene = draw_scene(POOL_SEED, index, level="easy")
    side = float(rng.uniform(*_CLOSE_UP_SIDE))
    cx, cy = rng.uniform(side / 2, 1 - side / 2, size=2)
    item = replace(scene.objects[0], cx=float(cx), cy=float(cy), side=side)
    return replace(scene, objects=(item,))


def same_words(scenes: list[Scene]) -> np.ndarray:
    """Which scenes' short captions say the same: bool ``[B, B]``."""
    said = [
        (frozenset((o.colour, o.shape) for o in scene.objects), scene.background, scene.light)
        for scene in scenes
    ]
    return np.array([[a == b for b in said] for a in said])


def main() -> None:
    """Train and export; run again to resume."""
    # the matcher's own, so that the token spans of datasets that it scored hold for this model too
    tokenizer = CLIPTokenizer.from_pretrained(mini_model("matcher"))
    parser = argparse.ArgumentParser(description="train the mini CLIP")
    run_trainer(parser, DEFAULTS, lambda _: WholePictureTraining(load_pool(), tokenizer))


if __name__ == "__main__":
    main()
