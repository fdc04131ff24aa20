"""F-CAST's text encoder: every chunk by itself, then a class token over the chunks (Eq. 1 to 3).

Shapes: T texts in rows, B captions of N chunks, W width, D width of the shared space.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from glit.models.clip.text_rows import TextRows
from glit.models.clip.text_tokens import tokens_in_rows
from glit.training.objectives.f_cast.vision import through

if TYPE_CHECKING:
    from transformers import CLIPModel


class TwoStageText(nn.Module):
    """CLIP's text tower cut in two: its first layers read chunks, its last ones join them.

    Args of the constructor:
        model: whose text tower is taken over.
        num_first: layers of the first stage; the others are the second.
        num_chunks: N.
    """

    def __init__(self, model: CLIPModel, *, num_first: int, num_chunks: int) -> None:
        super().__init__()
        tower: Any = model.text_model
        layers, width = list(tower.encoder.layers), int(tower.config.hidden_size)
        self.second = nn.ModuleList(layers[num_first:])
        self.second_norm = copy.deepcopy(tower.final_layer_norm)
        tower.encoder.layers = nn.ModuleList(layers[:num_first])
        self.first = tower
        self.adapter = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width)
        )
        self.class_token = nn.Parameter(torch.randn(width) * 0.02)
        self.positions = nn.Parameter(torch.randn(1 + num_chunks, width) * 0.01)
        self.part_projection = model.text_projection
        self.whole_projection = copy.deepcopy(model.text_projection)

    def chunks(self, texts: TextRows) -> Float[Tensor, "t w"]:
        """t_sub of every text: its end token (Eq. 1 and 2)."""
        tokens = tokens_in_rows(self.first, texts)
        return self.first.final_layer_norm(tokens[texts.offset_T + texts.length_T - 1])

    def parts(self, chunk: Float[Tensor, "... w"]) -> Float[Tensor, "... d"]:
        """Chunks in the shared space; not normalised."""
        return self.part_projection(chunk)

    def whole(
        self, chunk_BNW: Float[Tensor, "b n w"], valid_BN: Bool[Tensor, "b n"]
    ) -> Float[Tensor, "b d"]:
        """t_long of every caption from its chunks in order (Eq. 3); not normalised."""
        chunk_BNW = chunk_BNW + self.adapter(chunk_BNW)
        class_B1W = self.class_token.to(chunk_BNW.dtype).expand(len(chunk_BNW), 1, -1)
        hidden = torch.cat([class_B1W, chunk_BNW], dim=1) + self.positions[: 1 + valid_BN.shape[1]]
        hidden = through(self.second, hidden, F.pad(valid_BN, (1, 0), value=True))
        return self.whole_projection(self.second_norm(hidden[:, 0]))
