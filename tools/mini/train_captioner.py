"""Train the mini captioner, a small LLaVA-NeXT, on procedural scenes.

``python -m tools.mini.train_captioner --run build/mini/captioner``

The vision tower starts from the mini matcher's and goes on learning the attributes of every patch
while the language model learns the captions. Patches are the bottleneck (what shape is it?), so
at first most steps teach the tower alone, on larger batches; every picture is painted afresh.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import CLIPModel, PreTrainedTokenizerFast

from glit.scenes import Scene, canonical_caption
from glit.scenes.vocabulary import (
    BACKGROUNDS,
    COLOURS,
    LIGHTS,
    PATTERNS,
    PLACE_NAMES,
    SHAPES,
    SIZES,
)
from tools.mini.captioner_model import (
    BOS,
    CAPTION,
    EOS,
    GRID,
    caption_processor,
    caption_tokenizer,
    new_captioner,
    save_captioner,
)
from tools.mini.crops import to_tensor
from tools.mini.heads import DenseHead
from tools.mini.loop import LossAndMetrics, Training, TrainSettings, run_trainer
from tools.mini.pool import MAX_OBJECTS, fresh_scenes, painted

DEFAULTS = TrainSettings(steps=3000, lr=1.0e-3, warmup=200, decay_share=0.2)

_BATCH = 32
_TOWER_BATCH = 64
_TOWER_STEPS, _TOWER_PERIOD = 1500, 4
"""Up to that step only every fourth teaches captions; the others teach the tower alone."""
_EASY_STEPS = 1000
"""Steps whose captions are of scenes with at most two objects."""
_FRAME_WEIGHT = 0.2
"""Weight in the loss of words that are the same in every caption."""
_IGNORED = -100


class CaptionerTraining(Training):
    """The model and the head that only training needs; its tower starts as a matcher's."""

    def __init__(self, tower: Path) -> None:
        super().__init__()
        matcher: Any = CLIPModel.from_pretrained(tower, dtype=torch.float32)
        self.tokenizer = caption_tokenizer()
        self.llava = new_captioner(matcher.config.vision_config, self.tokenizer)
        self.llava.model.vision_tower.load_state_dict(matcher.vision_model.state_dict())
        self.dense = DenseHead(matcher.config.vision_config.hidden_size)
        self.telling = attribute_ids(self.tokenizer)

    def loss(self, rng: np.random.Generator, step: int) -> LossAndMetrics:
        """Attributes of every patch and, in most steps, the captions."""
        tower_only = step < _TOWER_STEPS and step % _TOWER_PERIOD != 0
        most = 2 if step < _EASY_STEPS and not tower_only else MAX_OBJECTS
        scenes = fresh_scenes(rng, _TOWER_BATCH if tower_only else _BATCH, max_objects=most)
        batch = painted(scenes)
        features, image = self.image_tokens(to_tensor(batch.pixels))
        dense, metrics = self.dense(
            features, torch.from_numpy(batch.patch_objects), torch.from_numpy(batch.attributes)
        )
        if tower_only:
            return dense, metrics
        words, spoken = self._words(image, scenes)
        return words + 0.5 * dense, metrics | spoken

    def _words(self, image: Tensor, scenes: list[Scene]) -> LossAndMetrics:
        """Cross-entropy of the captions, words that tell scenes apart weighing most."""
        inputs, targets = caption_batch(scenes, self.tokenizer)
        logits = self.caption_logits(image, self.tokenizer.get_vocab()[BOS], inputs).float()
        kept = targets != _IGNORED
        logits, targets = logits[kept], targets[kept]
        weights = torch.where(self.telling[targets], 1.0, _FRAME_WEIGHT)
        each = functional.cross_entropy(logits, targets, reduction="none")
        right = (logits.argmax(-1) == targets)[self.telling[targets]]
        loss = (each * weights).sum() / weights.sum()
        accuracy = float(right.float().mean())
        return loss, {"words": float(loss.detach()), "word_accuracy": accuracy}

    def image_tokens(self, pixels_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        """Patch features ``[B, 64, V]`` and the language model's image tokens ``[B, 136, D]``.

        The tile equals the base picture at this size, so the tower runs once; LLaVA-NeXT then puts
        a newline after each row of the tile.
        """
        parts = self.llava.model
        features = parts.vision_tower(pixel_values=pixels_BCHW).last_hidden_state[:, 1:]
        base = parts.multi_modal_projector(features)
        batch, _, width = base.shape
        newline = parts.image_newline.to(base.dtype).expand(batch, GRID, 1, width)
        tile = torch.cat([base.view(batch, GRID, GRID, width), newline], dim=2).flatten(1, 2)
        return features, torch.cat([base, tile], dim=1)

    def caption_logits(self, image_BID: Tensor, first_id: int, ids_BT: Tensor) -> Tensor:
        """Logits of every caption token: ``[B, T, vocabulary]``.

        :param ids_BT: the caption mark and the caption without its last token
        """
        embed = self.llava.get_input_embeddings()
        first = embed(torch.full((len(ids_BT), 1), first_id))
        tokens = torch.cat([first, image_BID.to(first.dtype), embed(ids_BT)], dim=1)
        hidden = self.llava.model.language_model(inputs_embeds=tokens, use_cache=False)
        return self.llava.lm_head(hidden.last_hidden_state[:, -ids_BT.shape[1] :])

    def export(self, folder: Path) -> None:
        """The model and its processor."""
        save_captioner(self.llava, caption_processor(self.tokenizer), folder)


def attribute_ids(tokenizer: PreTrainedTokenizerFast) -> Tensor:
    """Ids of the tokens that tell scenes apart, as a bool mask over the vocabulary."""
    phrases = [*SHAPES, *COLOURS, *PATTERNS, *SIZES, *PLACE_NAMES, "one two three four five"]
    phrases += [*BACKGROUNDS.values(), *(phrase for phrase, _ in LIGHTS.values())]
    words = " ".join(phrases).split()
    words += [PLACE.split()[0].capitalize() for PLACE in PLACE_NAMES] + ["The", "there"]
    result = torch.zeros(len(tokenizer), dtype=torch.bool)
    for word in set(words) - {"a", "of"}:
        result[tokenizer(f" {word}")["input_ids"]] = True
    result[tokenizer.get_vocab()[EOS]] = True
    return result


def caption_batch(scenes: list[Scene], tokenizer: PreTrainedTokenizerFast) -> tuple[Tensor, Tensor]:
    """Inputs (mark, caption) and targets (caption, end), int64 ``[B, T]``; padding is ignored."""
    mark, end = tokenizer.get_vocab()[CAPTION], tokenizer.get_vocab()[EOS]
    texts = [canonical_caption(scene) for scene in scenes]
    rows = [torch.tensor([mark, *ids, end]) for ids in tokenizer(texts)["input_ids"]]
    whole = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=_IGNORED)
    inputs = whole[:, :-1].masked_fill(whole[:, :-1] == _IGNORED, end)
    return inputs, whole[:, 1:]


def main() -> None:
    """Train and export; run again to resume."""
    parser = argparse.ArgumentParser(description="train the mini captioner")
    tower = Path("glit/mini/matcher")
    parser.add_argument("--tower", type=Path, default=tower, help="matcher to start from")
    run_trainer(parser, DEFAULTS, lambda words: CaptionerTraining(words.tower))


if __name__ == "__main__":
    main()
