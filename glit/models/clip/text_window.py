"""Interpolate CLIP's text position embeddings for long captions (77 to 248, as Long-CLIP does)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from glit.errors import RecipeError

if TYPE_CHECKING:
    from transformers import CLIPModel

KEPT_POSITIONS = 20
"""First positions, which are copied: they are well trained (Long-CLIP, section 3.1)."""


def stretch_positions(
    weight_LD: Float[Tensor, "l d"],
    context: int,
    *,
    keep: int = KEPT_POSITIONS,
) -> Float[Tensor, "context d"]:
    """Copy the first ``keep`` positions, interpolate the rest linearly, four to one.

    New position ``keep + 4 i + j`` is ``(4 - j)/4`` of old position ``keep + i`` and ``j/4`` of the
    next one; the last four continue the last step. 77 positions with 20 kept become 248.

    Raises:
        RecipeError: ``context`` is more positions than this gives.

    >>> stretch_positions(torch.tensor([[0.0], [1.0], [2.0]]), 6, keep=1).flatten().tolist()
    [0.0, 1.0, 1.25, 1.5, 1.75, 2.0]
    """
    length = weight_LD.shape[0]
    reach = keep + 4 * (length - keep)
    if context <= length:
        return weight_LD[:context].clone()
    if context > reach:
        raise RecipeError(
            f"train.context = {context} is longer than {length} text positions can be stretched "
            f"to; use at most {reach} (for glit eval, evaluate.context)"
        )
    tail_RD = weight_LD[keep:]
    step_RD = torch.empty_like(tail_RD)
    step_RD[:-1] = tail_RD[1:] - tail_RD[:-1]
    step_RD[-1] = tail_RD[-1] - weight_LD[-2]
    quarter_4 = torch.arange(4, dtype=weight_LD.dtype, device=weight_LD.device) / 4
    stretched = tail_RD[:, None, :] + quarter_4[None, :, None] * step_RD[:, None, :]
    return torch.cat([weight_LD[:keep], stretched.flatten(0, 1)])[:context]


def stretch_model(model: CLIPModel, context: int) -> None:
    """Give ``model`` a text window of ``context`` tokens, in place, in its config as well.

    A model with a window of that length, such as a checkpoint of glit, is not changed.
    """
    embeddings = model.text_model.embeddings
    old = embeddings.position_embedding.weight
    if old.shape[0] == context:
        return
    if model.config.model_type.startswith("siglip") and context < old.shape[0]:
        raise RecipeError(
            f"train.context = {context}: a SigLIP model reads a text off its last position, the "
            f"{old.shape[0]}th, so its window cannot be cut; use at least {old.shape[0]} (for "
            "glit eval, evaluate.context)"
        )
    new = stretch_positions(old.detach(), context)
    embeddings.position_embedding = nn.Embedding.from_pretrained(new, freeze=False)
    position_ids = torch.arange(context, device=old.device).expand((1, -1))
    embeddings.register_buffer("position_ids", position_ids, persistent=False)
    text_config: Any = model.config.text_config
    text_config.max_position_embeddings = context
    model.text_model.config.max_position_embeddings = context
