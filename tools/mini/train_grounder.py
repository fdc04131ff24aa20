"""Train the mini grounder, a small OWL-ViT, on procedural scenes.

``python -m tools.mini.train_grounder --run build/mini/grounder``

It starts from the mini matcher's towers. Every patch that shows an object learns its box, and which
of the step's phrases are true of it; all phrases of a step are asked of all its scenes, so that
most are false of most. OWL-ViT's bipartite matching (Minderer et al. 2022) is left out: several
patches may find one object, and non-maximum suppression keeps the surest.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchvision.ops import sigmoid_focal_loss
from transformers import (
    CLIPModel,
    CLIPTokenizer,
    OwlViTConfig,
    OwlViTForObjectDetection,
    OwlViTImageProcessor,
    OwlViTProcessor,
)

from tools.mini.crops import to_tensor
from tools.mini.evaluate import MINI
from tools.mini.heads import DenseHead, box_loss
from tools.mini.loop import LossAndMetrics, Training, TrainSettings, run_trainer
from tools.mini.phrases import draw_phrases, objects_of
from tools.mini.pool import IMAGE_PX, Painted, load_pool
from tools.mini.save import NORMALISATION, SQUARE, edit_json, save_model

DEFAULTS = TrainSettings(steps=2800, lr=6.0e-4, warmup=100)

_SCENES = 64
_PHRASES = 128
_FIRST_SCALE, _FIRST_SHIFT = 12.0, -0.5


def grounder(matcher: Path) -> tuple[OwlViTForObjectDetection, CLIPTokenizer]:
    """An OWL-ViT with the towers of a CLIP."""
    clip, tokenizer = CLIPModel.from_pretrained(matcher), CLIPTokenizer.from_pretrained(matcher)
    shape: Any = clip.config
    text, vision = shape.text_config.to_dict(), shape.vision_config.to_dict()
    names = ("hidden_size", "hidden_act", "intermediate_size", "num_hidden_layers",
             "num_attention_heads")  # fmt: skip
    ends = ("vocab_size", "max_position_embeddings", "bos_token_id", "eos_token_id", "pad_token_id")
    config = OwlViTConfig(
        text_config={name: text[name] for name in (*names, *ends)},
        vision_config={name: vision[name] for name in (*names, "image_size", "patch_size")},
        projection_dim=shape.projection_dim,
    )
    model = OwlViTForObjectDetection._from_config(config, attn_implementation="eager")
    weights = {
        name.replace("pre_layrnorm", "pre_layernorm"): value
        for name, value in clip.state_dict().items()
    }
    missing, unexpected = model.owlvit.load_state_dict(weights, strict=False)
    assert not missing and not unexpected, (missing, unexpected)
    with torch.no_grad():
        model.class_head.dense0.weight.copy_(clip.visual_projection.weight)
        head, boxes = model.class_head, model.box_head
        for layer in (boxes.dense0, boxes.dense1, boxes.dense2):
            layer.reset_parameters()  # the library draws them far too large to learn from
        for layer, first in ((head.logit_shift, _FIRST_SHIFT), (head.logit_scale, _FIRST_SCALE)):
            layer.weight.zero_()
            layer.bias.fill_(first)
    return model, tokenizer


class GrounderTraining(Training):
    """The model and the head that only training needs."""

    def __init__(self, pool: Painted, matcher: Path) -> None:
        super().__init__()
        self.pool = pool
        owl, self.tokenizer = grounder(matcher)
        self.owl: Any = owl
        self.dense = DenseHead(self.owl.config.vision_config.hidden_size)

    def loss(self, rng: np.random.Generator, step: int) -> LossAndMetrics:
        """Focal loss of phrases on patches, boxes of patches that show an object."""
        pool, words = self.pool, random.Random(int(rng.integers(2**62)))
        indices = np.sort(rng.choice(len(pool), size=_SCENES, replace=False))
        phrases = draw_phrases(pool, indices, _PHRASES, words)
        read: Any = self.tokenizer([p.text for p in phrases], padding=True, return_tensors="pt")
        features, seen = self.owl.image_embedder(to_tensor(pool.pixels[indices]))
        text = self.owl.owlvit.text_model(**read)
        query_PE = self.owl.owlvit.text_projection(text.pooler_output)
        patches_BTD = features.flatten(1, 2)
        logits_BTP, _ = self.owl.class_predictor(
            patches_BTD, query_PE.expand(len(indices), *query_PE.shape)
        )
        boxes_BT4 = self.owl.box_predictor(patches_BTD.float(), features.float())
        shown_BT = torch.from_numpy(pool.patch_objects[indices])
        found, metrics = phrase_loss(
            logits_BTP.float(),
            torch.from_numpy(objects_of(phrases, pool.attributes[indices])),
            shown_BT,
        )
        truth = torch.from_numpy(pool.boxes[indices] / IMAGE_PX)
        rows, places = torch.nonzero(shown_BT > 0, as_tuple=True)
        wanted = truth[rows, shown_BT[rows, places] - 1]
        boxes, giou = box_loss(boxes_BT4.float()[rows, places], wanted)
        dense, _ = self.dense(
            seen.last_hidden_state[:, 1:], shown_BT, torch.from_numpy(pool.attributes[indices])
        )
        return found + boxes + 0.1 * dense, metrics | {"giou": giou}

    def export(self, folder: Path) -> None:
        """``OwlViTForObjectDetection`` and ``OwlViTProcessor`` files."""
        save_model(self.owl, folder)
        pictures = OwlViTImageProcessor(size=SQUARE, crop_size=SQUARE, do_center_crop=False,
                                        **NORMALISATION)  # fmt: skip
        OwlViTProcessor(pictures, self.tokenizer).save_pretrained(folder)
        edit_json(folder / "tokenizer_config.json", is_local=None, local_files_only=None)


def phrase_loss(logits_BTP: Tensor, true_BKP: Tensor, shown_BT: Tensor) -> LossAndMetrics:
    """Focal loss (Lin et al. 2017, gamma 2, alpha 0.25) over patches and phrases, per true one."""
    nothing = torch.zeros_like(true_BKP[:, :1])
    by_object = torch.cat([nothing, true_BKP], dim=1)
    rows = shown_BT[:, :, None].expand(-1, -1, true_BKP.shape[-1])
    target = by_object.gather(1, rows).float()
    loss = sigmoid_focal_loss(logits_BTP, target, alpha=0.25, gamma=2.0, reduction="sum")
    called = logits_BTP > 0
    hits = float((called & (target > 0)).sum())
    return loss / target.sum().clamp(min=1) * 4, {
        "patch_recall": hits / max(1.0, float(target.sum())),
        "patch_precision": hits / max(1.0, float(called.sum())),
    }


def main() -> None:
    """Train and export; run again to resume."""
    parser = argparse.ArgumentParser(description="train the mini grounder")
    parser.add_argument("--matcher", type=Path, default=MINI / "matcher", help="where it starts")
    run_trainer(parser, DEFAULTS, lambda words: GrounderTraining(load_pool(), words.matcher))


if __name__ == "__main__":
    main()
