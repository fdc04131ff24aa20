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
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import CLIPConfig, CLIPModel, CLIPTokenizer

from glit.scenes.captions import (
    background_sentence,
    light_sentence,
    object_sentence,
    short_caption,
)
from tools.mini.crops import box_iou, cut, object_box, region_box, to_tensor
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
_OBJECT, _BACKGROUND, _LIGHT = 0, 1, 2


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
        self.clip = CLIPModel._from_config(config, attn_implementation="eager")
        width = config.vision_config.hidden_size
        self.dense = DenseHead(width)
        self.setting = SettingHead(width)
        self.crop = CropHead(width)
        positions = self.clip.vision_model.embeddings.position_embedding.weight
        with torch.no_grad():
            positions[1:] = 0.5 * sine_positions(grid_points(IMAGE_PX // PATCH_PX), width)


@dataclass(frozen=True, slots=True, kw_only=True)
class CropBatch:
    """Crops and sentences; sentence i belongs to crop i."""

    pixels: np.ndarray
    """uint8 ``[N, 128, 128, 3]``."""
    texts: list[str]
    attributes: np.ndarray
    """int64 ``[N, 4]``; -1 for regions that are no object."""
    kinds: np.ndarray
    """int64 ``[N]``: what the sentence tells of (object, background or light)."""
    settings: np.ndarray
    """int64 ``[N, 2]``: background and light of the crop's scene."""
    shows: list[set[tuple[int, ...]]]
    """Shape, colour and pattern of every object a grid region mostly shows."""


def draw_crops(pool: Pool, rng: np.random.Generator, step: int) -> CropBatch:
    """Object crops first, then grid regions of the same scenes."""
    words = random.Random(int(rng.integers(2**62)))
    candidates = rng.integers(len(pool), size=_NUM_OBJECT_CROPS * 16)
    slots = rng.integers(pool.num_objects[candidates])
    if step % 2:
        colours = pool.attributes[candidates, slots, 1]
        wanted = rng.integers(10)
        order = np.argsort(colours != wanted, kind="stable")
        candidates, slots = candidates[order], slots[order]
    pixels, texts, attributes, kinds, settings = [], [], [], [], []
    shows: list[set[tuple[int, ...]]] = []
    for scene_index, k in zip(
        candidates[:_NUM_OBJECT_CROPS], slots[:_NUM_OBJECT_CROPS], strict=True
    ):
        scene = pool.scene(int(scene_index))
        pixels.append(cut(pool, scene_index, object_box(pool.boxes[scene_index, k], rng)))
        texts.append(object_sentence(scene.objects[k], words))
        attributes.append(pool.attributes[scene_index, k])
        kinds.append(_OBJECT)
        settings.append(pool.settings[scene_index])
        shows.append({tuple(pool.attributes[scene_index, k, :3].tolist())})
    for scene_index in candidates[:_NUM_REGION_CROPS]:
        box, scene = region_box(rng), pool.scene(int(scene_index))
        about_light = rng.random() < 0.4
        pixels.append(cut(pool, scene_index, box))
        texts.append((light_sentence if about_light else background_sentence)(scene, words))
        attributes.append(np.full(4, -1))
        kinds.append(_LIGHT if about_light else _BACKGROUND)
        settings.append(pool.settings[scene_index])
        overlaps = box_iou(box, pool.boxes[scene_index, : pool.num_objects[scene_index]])
        good = np.flatnonzero(overlaps >= 0.5)
        shows.append({tuple(pool.attributes[scene_index, k, :3].tolist()) for k in good})
    return CropBatch(
        pixels=np.stack(pixels),
        texts=texts,
        attributes=np.stack(attributes),
        kinds=np.array(kinds),
        settings=np.stack(settings),
        shows=shows,
    )


def true_pairs(batch: CropBatch) -> np.ndarray:
    """Which sentence is true of which crop, other than its own: bool ``[sentences, crops]``.

    Sizes and places cannot be told from a crop, so an object sentence is true of every crop with
    its shape, colour and pattern. A background or light sentence is true of every grid region of
    a scene with that background or light.
    """
    number = len(batch.texts)
    result = np.zeros((number, number), dtype=bool)
    is_region = batch.kinds != _OBJECT
    names = [tuple(a[:3].tolist()) for a in batch.attributes]
    for i, kind in enumerate(batch.kinds):
        if kind == _OBJECT:
            result[i] = [names[i] in shown for shown in batch.shows]
        else:
            column = 0 if kind == _BACKGROUND else 1
            result[i] = is_region & (batch.settings[:, column] == batch.settings[i, column])
    return result


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
        crops = draw_crops(pool, rng, step)
        indices = rng.choice(len(pool), size=_NUM_SCENES, replace=False)
        words = random.Random(int(rng.integers(2**62)))
        texts = [short_caption(pool.scene(int(i)), words) for i in indices]
        images = to_tensor(np.concatenate([pool.pixels[indices], crops.pixels]))
        tokens = tokenizer(texts + crops.texts, padding=True, return_tensors="pt")
        seen = module.clip.vision_model(pixel_values=images)
        read = module.clip.text_model(**tokens)
        image_BE = functional.normalize(
            module.clip.visual_projection(seen.pooler_output).float(), dim=-1
        )
        text_BE = functional.normalize(
            module.clip.text_projection(read.pooler_output).float(), dim=-1
        )
        scale = module.clip.logit_scale.exp().clamp(max=100)
        n = _NUM_SCENES
        scenes_SS = scale * text_BE[:n] @ image_BE[:n].T
        crops_CC = scale * text_BE[n:] @ image_BE[n:].T
        never = torch.zeros(n, n, dtype=torch.bool)
        scene_loss = contrastive_loss(scenes_SS, never)
        crop_loss = contrastive_loss(crops_CC, torch.from_numpy(true_pairs(crops)))
        dense, metrics = module.dense(
            seen.last_hidden_state[:n, 1:],
            torch.from_numpy(pool.patch_objects[indices]),
            torch.from_numpy(pool.attributes[indices]),
        )
        setting = module.setting(seen.pooler_output[:n], torch.from_numpy(pool.settings[indices]))
        objects = slice(n, n + _NUM_OBJECT_CROPS)
        crop_attributes, shape = module.crop(
            seen.pooler_output[objects], torch.from_numpy(crops.attributes[:_NUM_OBJECT_CROPS])
        )
        loss = crop_loss + scene_loss + dense + 0.2 * setting + 0.3 * crop_attributes
        metrics |= shape | {
            "crop_loss": float(crop_loss.detach()),
            "scene_loss": float(scene_loss.detach()),
            "scene_r1": accuracy(scenes_SS, torch.arange(n)),
        }
        return loss, metrics

    return loss_of_step


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
