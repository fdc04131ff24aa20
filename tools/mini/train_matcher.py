"""Train the mini matcher, a small CLIP, on procedural scenes.

``python -m tools.mini.train_matcher --run build/mini/matcher``

Three tasks share every step: sentence to crop (object sentences against crops of objects, half of
the batches of one colour; background and light sentences against quadrants), short caption to
whole scene, and, as help for the vision tower, attributes of every patch and every crop.
Long captions are left out on purpose: learning them is what fine-tuning is for.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModel, CLIPConfig, CLIPModel, CLIPTokenizer

from glit.scenes.captions import short_caption
from tools.mini.crops import Crop, draw_crops, to_tensor, true_pairs
from tools.mini.heads import CropHead, DenseHead, SettingHead, accuracy
from tools.mini.loop import TrainSettings, chosen, train, trainer_parser
from tools.mini.pool import IMAGE_PX, PATCH_PX, Pool, load_pool
from tools.mini.positions import grid_points, sine_positions
from tools.mini.save import save_matcher
from tools.mini.text import CONTEXT, clip_tokenizer

DEFAULTS = TrainSettings(steps=2400, lr=1.0e-3, warmup=150)

_NUM_SCENES = 24
_NUM_OBJECT_CROPS = 64
_NUM_REGION_CROPS = 20
_FIRST_LOGIT_SCALE = 2.7


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


class MatcherTraining(nn.Module):
    """The model and the heads that only training needs."""

    def __init__(self, config: CLIPConfig) -> None:
        super().__init__()
        self.clip: CLIPModel = AutoModel.from_config(config, attn_implementation="eager")
        vision: Any = config.vision_config
        width = vision.hidden_size
        self.dense = DenseHead(width)
        self.setting = SettingHead(width)
        self.crop = CropHead(width)
        positions = self.clip.vision_model.embeddings.position_embedding.weight
        with torch.no_grad():
            positions[1:] = 0.5 * sine_positions(grid_points(IMAGE_PX // PATCH_PX), width)


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


def make_loss(
    pool: Pool,
    tokenizer: CLIPTokenizer,
) -> Callable[[MatcherTraining, np.random.Generator, int], tuple[Tensor, dict[str, float]]]:
    """The loss of one step."""

    def loss_of_step(
        module: MatcherTraining, rng: np.random.Generator, step: int
    ) -> tuple[Tensor, dict[str, float]]:
        crops = draw_crops(
            pool,
            rng,
            num_objects=_NUM_OBJECT_CROPS,
            num_regions=_NUM_REGION_CROPS,
            one_colour=step % 2 == 1,
        )
        indices = rng.choice(len(pool), size=_NUM_SCENES, replace=False)
        words = random.Random(int(rng.integers(2**62)))
        texts = [short_caption(pool.scene(int(i)), words) for i in indices]
        texts += [crop.text for crop in crops]
        images = np.concatenate([pool.pixels[indices], np.stack([crop.pixels for crop in crops])])
        seen = module.clip.vision_model(pixel_values=to_tensor(images))
        read = module.clip.text_model(**tokenizer(texts, padding=True, return_tensors="pt"))
        loss, metrics = _contrastive_part(module, seen.pooler_output, read.pooler_output, crops)
        more, seen_metrics = _attribute_part(module, seen, crops, pool, indices)
        return loss + more, seen_metrics | metrics

    return loss_of_step


def _contrastive_part(
    module: MatcherTraining, seen_BV: Tensor, read_BT: Tensor, crops: list[Crop]
) -> tuple[Tensor, dict[str, float]]:
    """Scenes against short captions plus crops against sentences; scenes come first in a batch."""
    clip, n = module.clip, _NUM_SCENES
    image_BE = functional.normalize(clip.visual_projection(seen_BV).float(), dim=-1)
    text_BE = functional.normalize(clip.text_projection(read_BT).float(), dim=-1)
    scale = clip.logit_scale.exp().clamp(max=100)
    scenes_SS = scale * text_BE[:n] @ image_BE[:n].T
    crops_CC = scale * text_BE[n:] @ image_BE[n:].T
    scene_loss = contrastive_loss(scenes_SS, torch.zeros(n, n, dtype=torch.bool))
    crop_loss = contrastive_loss(crops_CC, torch.from_numpy(true_pairs(crops)))
    return crop_loss + scene_loss, {
        "crop_loss": float(crop_loss.detach()),
        "scene_loss": float(scene_loss.detach()),
        "scene_r1": accuracy(scenes_SS, torch.arange(n)),
    }


def _attribute_part(
    module: MatcherTraining, seen: Any, crops: list[Crop], pool: Pool, indices: np.ndarray
) -> tuple[Tensor, dict[str, float]]:
    """What patches of scenes, scenes and object crops show."""
    n = _NUM_SCENES
    dense, metrics = module.dense(
        seen.last_hidden_state[:n, 1:],
        torch.from_numpy(pool.patch_objects[indices]),
        torch.from_numpy(pool.attributes[indices]),
    )
    setting = module.setting(seen.pooler_output[:n], torch.from_numpy(pool.settings[indices]))
    attributes = np.stack([crop.attributes for crop in crops[:_NUM_OBJECT_CROPS]])
    of_crops, shape = module.crop(
        seen.pooler_output[n : n + _NUM_OBJECT_CROPS], torch.from_numpy(attributes)
    )
    return dense + 0.2 * setting + 0.3 * of_crops, metrics | shape


def main() -> None:
    """Train and export; run again to resume."""
    arguments = trainer_parser(DEFAULTS, "train the mini matcher").parse_args()
    settings, folder = chosen(DEFAULTS, arguments), arguments.run
    torch.set_num_threads(1)
    torch.manual_seed(settings.seed)
    tokenizer = clip_tokenizer(folder / "tokenizer")
    module = MatcherTraining(matcher_config(len(tokenizer)))

    def export(trained: MatcherTraining) -> None:
        save_matcher(trained.clip, tokenizer, folder / "export")

    train(module, make_loss(load_pool(), tokenizer), settings, folder, export)


if __name__ == "__main__":
    main()
