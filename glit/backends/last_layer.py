"""transformers' encoders without the work whose result nobody reads.

CLIP's class token is one of 197, YOLOS' detection tokens are the last hundred of some 3,400; what
the last layer makes of the others is thrown away. Keys and values are still made of all tokens,
so the result is the same; a twelfth of the encoder shrinks to a fifth of that. YOLOS stretches
its position embeddings anew for every batch; here once for a size of images.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

_SIZES = 4  # image sizes whose position embeddings are kept


def keep_class_token(tower: Any) -> None:
    """Change a ``CLIPVisionModel`` in place: its last hidden state is the class token alone."""
    tower.encoder.layers[-1] = _ClipLast(tower.encoder.layers[-1])


def keep_detection_tokens(model: Any) -> None:
    """Change a ``YolosForObjectDetection`` in place: its last hidden state is detection tokens."""
    embeddings, encoder = model.vit.embeddings, model.vit.encoder
    encoder.layer[-1] = _YolosLast(encoder.layer[-1], model.config.num_detection_tokens)
    embeddings.interpolation = _Remembered(embeddings.interpolation)
    if encoder.interpolation is not None:
        encoder.interpolation = _Remembered(encoder.interpolation)


class _ClipLast(nn.Module):
    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, hidden: Tensor, *_: Any, **__: Any) -> Tensor:
        """[B, N, C] -> [B, 1, C]"""
        layer, attention = self.layer, self.layer.self_attn
        normed = layer.layer_norm1(hidden)
        seen = _attend(
            attention.q_proj(normed[:, :1]),
            attention.k_proj(normed),
            attention.v_proj(normed),
            attention.num_heads,
        )
        kept = hidden[:, :1] + attention.out_proj(seen)
        return kept + layer.mlp(layer.layer_norm2(kept))


class _YolosLast(nn.Module):
    def __init__(self, layer: Any, number: int) -> None:
        super().__init__()
        self.layer = layer
        self.number = number

    def forward(self, hidden: Tensor, *_: Any, **__: Any) -> Tensor:
        """[B, N, C] -> [B, number, C]"""
        layer, attention = self.layer, self.layer.attention.attention
        normed = layer.layernorm_before(hidden)
        seen = _attend(
            attention.query(normed[:, -self.number :]),
            attention.key(normed),
            attention.value(normed),
            attention.num_attention_heads,
        )
        kept = hidden[:, -self.number :] + layer.attention.output.dense(seen)
        return layer.output(layer.intermediate(layer.layernorm_after(kept)), kept)


class _Remembered(nn.Module):
    """Position embeddings, stretched once for each of the last few image sizes."""

    def __init__(self, interpolation: Any) -> None:
        super().__init__()
        self.interpolation = interpolation
        self._known: dict[tuple[int, int], Tensor] = {}

    def forward(self, *arguments: Any) -> Tensor:
        """The image's (height, width) comes last."""
        size = arguments[-1]
        if size not in self._known:
            if len(self._known) == _SIZES:
                self._known.pop(next(iter(self._known)))
            self._known[size] = self.interpolation(*arguments)
        return self._known[size]


def _attend(queries: Tensor, keys: Tensor, values: Tensor, heads: int) -> Tensor:
    """[B, R, C], [B, N, C], [B, N, C] -> [B, R, C]"""
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (queries, keys, values))
    return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
