"""Token features of texts laid out in rows, before the text tower's final layer norm.

Shapes: R rows of W token slots, H width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from glit.models.clip.text_rows import TextRows

if TYPE_CHECKING:
    from transformers import CLIPTextModel


def tokens_in_rows(tower: CLIPTextModel, texts: TextRows) -> Float[Tensor, "rw h"]:
    """All rows at once, with their own positions and attention mask (``text_rows.py``).

    The tower's public forward would run its final layer norm on every token, which nobody wants.
    """
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
