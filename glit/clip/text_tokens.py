"""Token features of texts laid out in rows, before the text tower's final layer norm.

The fast path runs the tower's layers on the rows, with the rows' own positions and attention mask
(:mod:`glit.clip.text_rows`), which the tower's public forward does not offer. The plain path runs
the public forward on each text in a row of its own.

Shapes: R rows of W token slots, T texts, L tokens of the longest, H width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from glit.clip.text_rows import TextRows, lay_out
from glit.runtime.verified_paths import agrees

if TYPE_CHECKING:
    from transformers import CLIPTextModel


def tokens_in_rows(tower: CLIPTextModel, texts: TextRows) -> Float[Tensor, "rw h"]:
    """The fast path: all rows at once."""
    embeddings: Any = tower.embeddings
    hidden = embeddings(input_ids=texts.input_ids_RW, position_ids=texts.position_ids_RW)
    mask = texts.attention_mask()
    if tower.config._attn_implementation == "eager":
        lowest = torch.finfo(hidden.dtype).min
        mask = torch.zeros(mask.shape, dtype=hidden.dtype, device=mask.device).masked_fill(
            ~mask, lowest
        )
    hidden = tower.encoder(
        inputs_embeds=hidden, attention_mask=mask, is_causal=False
    ).last_hidden_state
    return hidden.flatten(0, 1)


def tokens_alone(tower: CLIPTextModel, texts: TextRows) -> Float[Tensor, "rw h"]:
    """The plain path: each text in a row of its own; features of empty slots are zero."""
    ids_X = texts.input_ids_RW.flatten()
    slot_L = torch.arange(int(texts.length_T.max()), device=ids_X.device)
    index_TL = texts.offset_T[:, None] + slot_L
    inside_TL = slot_L < texts.length_T[:, None]
    # behind a text stand tokens of another: causal attention, so they cannot reach it
    ids_TL = ids_X[index_TL.clamp_max(len(ids_X) - 1)]
    caught: list[Tensor] = []
    hook = tower.final_layer_norm.register_forward_pre_hook(lambda _, x: caught.append(x[0]))
    try:
        tower(input_ids=ids_TL)
    finally:
        hook.remove()
    hidden_TLH = caught[0]
    empty = hidden_TLH.new_zeros(len(ids_X), hidden_TLH.shape[-1])
    return empty.index_copy(0, index_TL[inside_TL], hidden_TLH[inside_TL])


def rows_agree(tower: CLIPTextModel) -> bool:
    """Return whether two short texts in one row have the features that they have alone."""
    weight: Any = tower.get_input_embeddings().weight
    attention = getattr(tower.config, "_attn_implementation", "")  # decides how a mask is read
    ids = (torch.arange(8) * 7 % len(weight)).tolist()
    texts = lay_out([ids[:5], ids[5:]], context=8, pad_id=0).to(weight.device)
    training = tower.training
    tower.eval()  # no dropout
    try:
        return agrees(
            "CLIP's text encoder with several texts in a row",
            package="transformers",
            kind=(type(tower), weight.device.type, weight.dtype, attention),
            fast=lambda: [tokens_in_rows(tower, texts)],
            plain=lambda: [tokens_alone(tower, texts)],
        )
    finally:
        tower.train(training)
