"""The model of a run: CLIP's towers and, if the objective brings one, its module.

One vision pass and one text pass a batch, globals and locals together. This is what
DistributedDataParallel wraps and what gradient caching runs twice.

Shapes: N samples, K local slots, P patches, L caption tokens, H tower width, G, M, F and E as in
:class:`Batch`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from glit.models.clip.encoder import ClipEncoder
from glit.models.clip.pooling import masked_mean, patch_mask, span_mask
from glit.training.batch import Batch, into_slots
from glit.training.features import Features
from glit.training.module import Encoded, ModuleOutput, ObjectiveModule, Tokens
from glit.training.objective import Objective


class TrainedModel(nn.Module):
    """Turns a Batch into Features."""

    def __init__(
        self, encoder: ClipEncoder, objective: Objective, module: ObjectiveModule | None = None
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.module = module
        self.needs = objective.needs
        self.own_encoders = objective.own_encoders

    def forward(self, batch: Batch) -> tuple[Features, Tensor]:
        """Features of the batch's samples (float32) and the logit scale as a factor."""
        encoder, needs, tokens = self.encoder, self.needs, None
        pooled: dict[str, Tensor] = {}
        if self.own_encoders:
            device = batch.valid_N.device
            image_VD = torch.zeros(len(batch.pixels_V3SS), encoder.width, device=device)
            text_TD = torch.zeros(len(batch.texts.length_T), encoder.width, device=device)
        else:
            wants_tokens = needs.pooled_tokens or needs.tokens
            patch_BPH, image_VD = encoder.encode_images(
                batch.pixels_V3SS,
                num_tokens=batch.num_global if wants_tokens or needs.pooled_patches else 0,
                unmixed=needs.unmixed,
            )
            token_flat_H, text_TD = encoder.encode_texts(batch.texts)
            if needs.pooled_patches:
                pooled |= _pooled_patches(batch, encoder, patch_BPH)
            if wants_tokens:
                tokens = _tokens(batch, encoder, patch_BPH, token_flat_H)
                if needs.pooled_tokens:
                    pooled |= _pooled_tokens(batch, encoder, tokens)
        features = _features(batch, image_VD, text_TD, pooled)
        if self.module is not None:
            made: ModuleOutput = self.module(
                Encoded(features=features, encoder=encoder, tokens=tokens, batch=batch)
            )
            features = replace(
                features, made=made.rows, valid_made=made.valid, numbers=made.numbers
            )
        return features, encoder.logit_scale


def _features(
    batch: Batch, image_VD: Tensor, text_TD: Tensor, pooled: dict[str, Tensor]
) -> Features:
    """Embeddings in their slots; zeros instead of what was not encoded."""
    num_global, num_negatives, num_further = (
        batch.num_global, len(batch.slot_F), len(batch.slot_E)
    )  # fmt: skip
    num_sentences = len(text_TD) - num_global - num_negatives - num_further
    text_GD, sentence_MD, negative_FD, further_ED = text_TD.split(
        [num_global, num_sentences, num_negatives, num_further]
    )
    image_GD, crop_MD = image_VD[:num_global], image_VD[num_global:]
    valid_NK = batch.valid_local_NK
    empty_ND = image_VD.new_zeros(len(batch.valid_N), image_VD.shape[-1])
    empty_NKD = image_VD.new_zeros(*valid_NK.shape, image_VD.shape[-1])
    embedded = {
        "image_ND": image_GD if num_global else empty_ND,
        "text_ND": text_GD if num_global else empty_ND,
        "local_image_NKD": into_slots(crop_MD, batch.slot_M[: len(crop_MD)], valid_NK),
        "local_text_NKD": into_slots(sentence_MD, batch.slot_M[:num_sentences], valid_NK),
        "negative_text_NKJD": into_slots(negative_FD, batch.slot_F, batch.valid_negative_NKJ),
        "further_text_NSD": into_slots(further_ED, batch.slot_E, batch.valid_further_NS),
        "pooled_patch_NKD": empty_NKD,
        "pooled_token_NKD": empty_NKD,
        "valid_patch_NK": torch.zeros_like(valid_NK),
        "valid_token_NK": torch.zeros_like(valid_NK),
    }
    rows: dict[str, Any] = batch.labels() | embedded | pooled
    return Features(**rows)


def _tokens(batch: Batch, encoder: ClipEncoder, patch_BPH: Tensor, token_flat_H: Tensor) -> Tokens:
    token_BLH, valid_token_BL = batch.texts.apart(token_flat_H, batch.num_global)
    last_T = batch.texts.offset_T + batch.texts.length_T - 1
    last_E = last_T[len(last_T) - len(batch.slot_E) :]
    further_ED = encoder.token_features(token_flat_H[last_E])
    return Tokens(
        patch_BPH=patch_BPH,
        token_BLH=token_BLH,
        valid_token_BL=valid_token_BL,
        further_BSD=into_slots(further_ED, batch.slot_E, batch.valid_further_NS),
    )


def patches_of_regions(batch: Batch, encoder: ClipEncoder) -> Tensor:
    """Return the patches that each region touches, [N, K, P]: its mask's, or else its box's."""
    box_NKP = patch_mask(batch.boxes_NK4, patch_size=encoder.patch_size, grid=encoder.grid)
    if batch.mask_patches_NKP is None:
        return box_NKP
    both_NKP = box_NKP & batch.mask_patches_NKP
    return torch.where(both_NKP.any(dim=-1, keepdim=True), both_NKP, box_NKP)


def _pooled_patches(batch: Batch, encoder: ClipEncoder, patch_BPH: Tensor) -> dict[str, Tensor]:
    """The patches under the regions, pooled (FAST-GOAL Eq. 9)."""
    inside_NKP = patches_of_regions(batch, encoder)
    return {
        "pooled_patch_NKD": encoder.pool_patches(patch_BPH, inside_NKP),
        "valid_patch_NK": inside_NKP.any(dim=-1) & batch.valid_local_NK,
    }


def _pooled_tokens(batch: Batch, encoder: ClipEncoder, tokens: Tokens) -> dict[str, Tensor]:
    """The caption's tokens of the sentences (FAST-GOAL Eq. 7)."""
    last_N1 = batch.texts.length_T[: batch.num_global, None] - 1  # the end token is no sentence's
    inside_NKL = span_mask(batch.spans_NK2, length=tokens.token_BLH.shape[1])
    inside_NKL = inside_NKL & (batch.spans_NK2[..., 1] <= last_N1)[..., None]
    return {
        "pooled_token_NKD": encoder.project_tokens(masked_mean(tokens.token_BLH, inside_NKL)),
        "valid_token_NK": inside_NKL.any(dim=-1) & batch.valid_local_NK,
    }
