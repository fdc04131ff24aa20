"""The loss of a training step the published way, which ours must equal. Written from the papers.

What GOAL's scripts do in a step, and this does too: both encoders run twice over globals and
locals (once for the embeddings, once for the tokens), every text is padded to 248 tokens, the
caption is tokenised again for every sample to find the sentence, and patches and tokens are pooled
in Python loops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import CLIPModel

from glit.models.clip.preprocess import vision_side
from glit.models.tokenizer import TextTokenizer
from glit.training.batch import Batch
from glit.training.sample import PlannedSample

CONTEXT = 248


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedBatch:
    """B samples with one local pair each, as the published loader hands them over."""

    global_pixels: Tensor
    """[B, 3, S, S], normalised."""
    local_pixels: Tensor
    """[B, 3, S, S], normalised."""
    captions: list[str]
    sentences: list[str]
    caption_ids: Tensor
    """[B, 248]"""
    sentence_ids: Tensor
    """[B, 248]"""
    boxes: list[tuple[float, ...]]
    """Pixels of the square."""


def padded_batch(
    batch: Batch,
    samples: Sequence[PlannedSample],
    tokenizer: TextTokenizer,
    *,
    mean: Tensor,
    std: Tensor,
) -> PaddedBatch:
    """Normalise every image of a batch, one pair a sample, and pad every text to 248 tokens."""
    captions = [sample.caption for sample in samples]
    sentences = [sample.pairs[0].sentence for sample in samples]
    pixels = (batch.pixels_V3SS.float() - mean[:, None, None]) / std[:, None, None]
    return PaddedBatch(
        global_pixels=pixels[: batch.num_global],
        local_pixels=pixels[batch.num_global :],
        captions=captions,
        sentences=sentences,
        caption_ids=_padded(tokenizer, captions),
        sentence_ids=_padded(tokenizer, sentences),
        boxes=[tuple(s.boxes_K4[0].tolist()) for s in samples],
    )


def published_loss(model: CLIPModel, batch: PaddedBatch, tokenizer: TextTokenizer) -> Tensor:
    """GOAL's loss: global + 0.5 local + TSL over the diagonal."""
    size = len(batch.captions)
    pixels = torch.cat([batch.global_pixels, batch.local_pixels])
    ids = torch.cat([batch.caption_ids, batch.sentence_ids])
    output = model(pixel_values=pixels, input_ids=ids)
    vision = model.vision_model(pixel_values=pixels, output_hidden_states=True)
    text = model.text_model(input_ids=ids, output_hidden_states=True)
    patches = vision.hidden_states[-1][:size, 1:]
    tokens = text.hidden_states[-1][:size]

    image, words = F.normalize(output.image_embeds), F.normalize(output.text_embeds)
    scale = model.logit_scale.exp()
    whole = _symmetric(scale * image[:size] @ words[:size].T)
    local = _symmetric(scale * image[size:] @ words[size:].T)

    _, patch_size = vision_side(model)
    pooled_patches = torch.stack(
        [_pool_patches(patches[b], batch.boxes[b], patch_size) for b in range(size)]
    )
    pooled_tokens = torch.stack(
        [
            _pool_tokens(tokens[b], batch.captions[b], batch.sentences[b], tokenizer)
            for b in range(size)
        ]
    )
    region = model.visual_projection(model.vision_model.post_layernorm(pooled_patches))
    sentence = model.text_projection(model.text_model.final_layer_norm(pooled_tokens))
    tsl = _to_one(region, image[size:]) + _to_one(sentence, words[size:])
    return whole + 0.5 * local + tsl


def _padded(tokenizer: TextTokenizer, texts: Sequence[str]) -> Tensor:
    rows = tokenizer.encode_closed(texts, context=CONTEXT)
    return torch.tensor([row + [tokenizer.end_id] * (CONTEXT - len(row)) for row in rows])


def _symmetric(logits: Tensor) -> Tensor:
    target = torch.arange(len(logits))
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


def _to_one(pooled: Tensor, local: Tensor) -> Tensor:
    cosine = (F.normalize(pooled) @ local.T).diagonal()
    return F.mse_loss(cosine, torch.ones_like(cosine))


def _pool_patches(patches: Tensor, box: tuple[float, ...], patch_size: int) -> Tensor:
    """Algorithm 1 of FAST-GOAL, one sample."""
    grid = math.isqrt(len(patches))
    columns = range(math.floor(box[0] / patch_size), math.ceil(box[2] / patch_size))
    rows = range(math.floor(box[1] / patch_size), math.ceil(box[3] / patch_size))
    indices = [row * grid + column for row in rows for column in columns]
    return patches[indices].mean(dim=0)


def _pool_tokens(tokens: Tensor, caption: str, sentence: str, tokenizer: TextTokenizer) -> Tensor:
    """Tokenise what comes before the sentence, and the sentence, to find its tokens."""
    before = caption[: caption.index(sentence)]
    start = 1 + len(tokenizer.encode([before])[0])
    end = start + len(tokenizer.encode([sentence])[0])
    return tokens[start:end].mean(dim=0)
