"""Train the mini CLIP that fine-tuning starts from: whole pictures and short captions alone.

``python -m tools.mini.train_clip --run build/mini/clip``

A start like the papers': it has met pictures at every scale, since every other picture is a
close-up whose one object fills most of it, but no crop, no region, no attribute of a patch and
no long caption. What a fine-tune on a dataset teaches it is then the dataset's doing, which the
mini matcher, trained on regions, cannot show.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModel, CLIPConfig, CLIPModel, CLIPTokenizer

from glit.recipes.resources import mini_model
from glit.scenes import Scene, draw_scene, render
from glit.scenes.captions import short_caption
from tools.mini.crops import to_tensor
from tools.mini.heads import accuracy
from tools.mini.loop import TrainSettings, chosen, train, trainer_parser
from tools.mini.pool import IMAGE_PX, PATCH_PX, POOL_SCENES, POOL_SEED, Pool, load_pool
from tools.mini.positions import grid_points, sine_positions
from tools.mini.save import save_matcher
from tools.mini.train_matcher import contrastive_loss, matcher_config

DEFAULTS = TrainSettings(steps=1600, lr=1.0e-3, warmup=150)

_NUM_SCENES = 40
_NUM_CLOSE_UPS = 24
_CLOSE_UP_SIDE = (0.5, 0.98)
"""Range of a close-up's object, as a fraction of the picture."""


class ClipTraining(nn.Module):
    """The model alone: nothing here is thrown away after training."""

    def __init__(self, config: CLIPConfig) -> None:
        super().__init__()
        self.clip: CLIPModel = AutoModel.from_config(config, attn_implementation="eager")
        positions = self.clip.vision_model.embeddings.position_embedding.weight
        with torch.no_grad():
            grid = grid_points(IMAGE_PX // PATCH_PX)
            positions[1:] = 0.5 * sine_positions(grid, positions.shape[1])


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


def make_loss(
    pool: Pool, tokenizer: CLIPTokenizer
) -> Callable[[ClipTraining, np.random.Generator, int], tuple[Tensor, dict[str, float]]]:
    """The loss of one step: CLIP's, pictures against their short captions."""

    def loss_of_step(
        module: ClipTraining, rng: np.random.Generator, step: int
    ) -> tuple[Tensor, dict[str, float]]:
        indices = rng.choice(len(pool), size=_NUM_SCENES, replace=False)
        near = [close_up(rng) for _ in range(_NUM_CLOSE_UPS)]
        scenes = [pool.scene(int(i)) for i in indices] + near
        painted = [render(scene, size_px=IMAGE_PX).pixels for scene in near]
        images = np.concatenate([pool.pixels[indices], np.stack(painted)])
        words = random.Random(int(rng.integers(2**62)))
        texts = [short_caption(scene, words) for scene in scenes]
        seen = module.clip.vision_model(pixel_values=to_tensor(images)).pooler_output
        read = module.clip.text_model(**tokenizer(texts, padding=True, return_tensors="pt"))
        image_BE = functional.normalize(module.clip.visual_projection(seen).float(), dim=-1)
        text_BE = module.clip.text_projection(read.pooler_output).float()
        text_BE = functional.normalize(text_BE, dim=-1)
        scaled_BB = module.clip.logit_scale.exp().clamp(max=100) * text_BE @ image_BE.T
        loss = contrastive_loss(scaled_BB, torch.from_numpy(same_words(scenes)))
        return loss, {"r1": accuracy(scaled_BB, torch.arange(len(scenes)))}

    return loss_of_step


def main() -> None:
    """Train and export; run again to resume."""
    arguments = trainer_parser(DEFAULTS, "train the mini CLIP").parse_args()
    settings, folder = chosen(DEFAULTS, arguments), arguments.run
    torch.set_num_threads(1)
    torch.manual_seed(settings.seed)
    # the matcher's own, so that the token spans of datasets that it scored hold for this model too
    tokenizer = CLIPTokenizer.from_pretrained(mini_model("matcher"))
    module = ClipTraining(matcher_config(len(tokenizer)))

    def export(trained: ClipTraining) -> None:
        save_matcher(trained.clip, tokenizer, folder / "export")

    train(module, make_loss(load_pool(), tokenizer), settings, folder, export)


if __name__ == "__main__":
    main()
