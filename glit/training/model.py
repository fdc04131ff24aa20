"""The model of a run: CLIP's towers and, if the objective brings one, its module.

One vision pass and one text pass a batch, globals and locals together. This is what
DistributedDataParallel wraps and what gradient caching runs twice.

Shapes: B samples, K local slots, S further texts, P patches, L caption tokens, H tower width.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from glit.models.clip.encoder import ClipEncoder
from glit.models.clip.pooling import masked_mean, patch_mask, span_mask
from glit.training.batch import Batch
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
        encoder = self.encoder
        if self.own_encoders:
            return self._by_own_encoders(batch), encoder.logit_scale
        needs = self.needs
        wants_tokens = needs.pooled_tokens or needs.tokens
        patch_BPH, image_VD = encoder.encode_images(
            batch.pixels_V3SS,
            num_tokens=batch.num_global if wants_tokens or needs.pooled_patches else 0,
            unmixed=needs.unmixed,
        )
        token_flat_H, text_TD = encoder.encode_texts(batch.texts)
        features, tokens = _features(batch, image_VD, text_TD), None
        if needs.pooled_patches:
            features = _with_pooled_patches(features, batch, encoder, patch_BPH)
        if wants_tokens:
            tokens = _tokens(batch, encoder, patch_BPH, token_flat_H)
            if needs.pooled_tokens:
                features = _with_pooled_tokens(features, batch, encoder, tokens)
        if self.module is not None:
            features = self._made(
                Encoded(features=features, encoder=encoder, tokens=tokens, batch=batch)
            )
        return features, encoder.logit_scale

    def _by_own_encoders(self, batch: Batch) -> Features:
        """Zeros instead of CLIP's embeddings, and the module's outputs for the batch."""
        width, device = self.encoder.width, batch.valid_B.device
        nothing_VD = torch.zeros(len(batch.pixels_V3SS), width, device=device)
        nothing_TD = torch.zeros(len(batch.texts.length_T), width, device=device)
        features = _features(batch, nothing_VD, nothing_TD)
        return self._made(Encoded(features=features, encoder=self.encoder, batch=batch))

    def _made(self, encoded: Encoded) -> Features:
        assert self.module is not None
        made: ModuleOutput = self.module(encoded)
        return replace(
            encoded.features, made=made.rows, valid_made=made.valid, numbers=made.numbers
        )


def _features(batch: Batch, image_VD: Tensor, text_TD: Tensor) -> Features:
    num_global, first_further = batch.num_global, len(text_TD) - len(batch.slot_E)
    first_negative = first_further - len(batch.slot_F)
    local_image = _of_pairs(image_VD[num_global:], batch)
    local_text = _of_pairs(text_TD[num_global:first_negative], batch)
    empty_BKD = torch.zeros_like(local_image)
    empty_BD = image_VD.new_zeros(len(batch.valid_B), image_VD.shape[-1])
    nothing_BK = torch.zeros_like(batch.valid_local_BK)
    return Features(
        image_ND=image_VD[:num_global] if num_global else empty_BD,
        text_ND=text_TD[:num_global] if num_global else empty_BD,
        local_image_NKD=local_image,
        local_text_NKD=local_text,
        pooled_patch_NKD=empty_BKD,
        pooled_token_NKD=empty_BKD,
        negative_text_NKJD=_into_slots(
            text_TD[first_negative:first_further], batch.slot_F, batch.valid_negative_BKJ
        ),
        further_text_NSD=_into_slots(text_TD[first_further:], batch.slot_E, batch.valid_further_BS),
        valid_N=batch.valid_B,
        valid_local_NK=batch.valid_local_BK,
        valid_patch_NK=nothing_BK,
        valid_token_NK=nothing_BK,
        valid_negative_NKJ=batch.valid_negative_BKJ,
        valid_further_NS=batch.valid_further_BS,
        similarity_NK=batch.similarity_BK,
        weight_NK=batch.weight_BK,
        local_key_NK2=batch.local_key_BK2,
        caption_key_N2=batch.caption_key_B2,
        further_key_NS2=batch.further_key_BS2,
    )


def _of_pairs(embedding_MD: Tensor, batch: Batch) -> Tensor:
    """Embeddings of the pairs' crops or sentences in their slots; zeros where none were encoded."""
    slot_M = batch.slot_M if len(embedding_MD) else batch.slot_M[:0]
    return _into_slots(embedding_MD, slot_M, batch.valid_local_BK)


def _into_slots(embedding_MD: Tensor, slot_M: Tensor, valid_BK: Tensor) -> Tensor:
    """[M, D] -> the slots' shape by D, zeros where no slot is filled."""
    slots = embedding_MD.new_zeros(valid_BK.numel(), embedding_MD.shape[-1])
    slots = slots.index_copy(0, slot_M, embedding_MD)
    return slots.view(*valid_BK.shape, embedding_MD.shape[-1])


def _tokens(batch: Batch, encoder: ClipEncoder, patch_BPH: Tensor, token_flat_H: Tensor) -> Tokens:
    token_BLH, valid_token_BL = batch.texts.apart(token_flat_H, batch.num_global)
    last_T = batch.texts.offset_T + batch.texts.length_T - 1
    last_E = last_T[len(last_T) - len(batch.slot_E) :]
    further_ED = encoder.token_features(token_flat_H[last_E])
    return Tokens(
        patch_BPH=patch_BPH,
        token_BLH=token_BLH,
        valid_token_BL=valid_token_BL,
        patches_BKP=patches_of_regions(batch, encoder),
        further_BSD=_into_slots(further_ED, batch.slot_E, batch.valid_further_BS),
    )


def patches_of_regions(batch: Batch, encoder: ClipEncoder) -> Tensor:
    """Return the patches that each region touches, [B, K, P]: its mask's, or else its box's."""
    box_BKP = patch_mask(batch.boxes_BK4, patch_size=encoder.patch_size, grid=encoder.grid)
    if batch.mask_patches_BKP is None:
        return box_BKP
    both_BKP = box_BKP & batch.mask_patches_BKP
    return torch.where(both_BKP.any(dim=-1, keepdim=True), both_BKP, box_BKP)


def _with_pooled_patches(
    features: Features, batch: Batch, encoder: ClipEncoder, patch_BPH: Tensor
) -> Features:
    """The features with the patches under the regions (FAST-GOAL Eq. 9)."""
    patches_BKP = patches_of_regions(batch, encoder)
    return replace(
        features,
        pooled_patch_NKD=encoder.pool_patches(patch_BPH, patches_BKP),
        valid_patch_NK=patches_BKP.any(dim=-1) & batch.valid_local_BK,
    )


def _with_pooled_tokens(
    features: Features, batch: Batch, encoder: ClipEncoder, tokens: Tokens
) -> Features:
    """The features with the caption's tokens of the sentences (FAST-GOAL Eq. 7)."""
    last_B1 = batch.texts.length_T[: batch.num_global, None] - 1  # the end token is no sentence's
    spans_BKL = span_mask(batch.spans_BK2, length=tokens.token_BLH.shape[1])
    spans_BKL = spans_BKL & (batch.spans_BK2[..., 1] <= last_B1)[..., None]
    return replace(
        features,
        pooled_token_NKD=encoder.project_tokens(masked_mean(tokens.token_BLH, spans_BKL)),
        valid_token_NK=spans_BKL.any(dim=-1) & batch.valid_local_BK,
    )
