"""transformers' vision encoders with the last layer computed only for the tokens in use.

CLIP's matcher reads the class token, one of 197; YOLOS' heads read the 100 detection tokens, of
some 3,400. In the last layer only those tokens need q, the output projection and the MLP; k and v
are still computed for all tokens, so the results are the same. The last layer needs 16 % of its
operations then (CLIP ViT-B/16; YOLOS-base: 12 %), all twelve layers need 93 %.

YOLOS also interpolates its position embeddings for every batch; here once for a size of images.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from glit.runtime.verified_paths import Swap, agrees, probe_input, swap, swapped

_SIZES = 4
"""Image sizes whose position embeddings are kept."""


def keep_class_token(tower: Any) -> None:
    """Change a ``CLIPVisionModel`` in place: its last hidden state is [B, 1, C], the class token.

    ``pooler_output`` is the same. A model that the fast path does not agree with stays as it is.
    """
    side = 2 * tower.config.patch_size

    def outputs(swaps: list[Swap]) -> list[Tensor]:
        pixels = probe_input(2, 3, side, side, like=next(tower.parameters()))
        with swapped(_skip(tower.encoder.layers)), swapped(swaps):
            return [tower(pixel_values=pixels, interpolate_pos_encoding=True).pooler_output]

    if agrees(
        "the last layer of CLIP's image encoder",
        package="transformers",
        kind=_kind(tower),
        plain=lambda: outputs([]),
        fast=lambda: outputs(_clip_swaps(tower)),
    ):
        swap(_clip_swaps(tower))


def keep_detection_tokens(model: Any) -> None:
    """Change a ``YolosForObjectDetection`` in place: its last hidden state is [B, R, C], the R
    detection tokens.

    Logits and boxes are the same. A model that the fast path does not agree with stays as it is.
    """
    patch = model.config.patch_size

    def outputs(swaps: list[Swap]) -> list[Tensor]:
        found = []
        with swapped(_skip(model.vit.encoder.layer)), swapped(swaps):
            # as many patches, but in other places; and the first size again, when it is known
            for rows, columns in [(2, 3), (3, 2), (2, 3)]:
                pixels = probe_input(
                    1, 3, rows * patch, columns * patch, like=next(model.parameters())
                )
                answer = model(pixel_values=pixels)
                found += [answer.logits, answer.pred_boxes]
        return found

    if agrees(
        "the last layer of YOLOS",
        package="transformers",
        kind=(*_kind(model), model.config.use_mid_position_embeddings),
        plain=lambda: outputs([]),
        fast=lambda: outputs(_yolos_swaps(model)),
    ):
        swap(_yolos_swaps(model))


def _clip_swaps(tower: Any) -> list[Swap]:
    layers = tower.encoder.layers
    return [(layers, str(len(layers) - 1), _ClipLastLayer(layers[-1]))]


def _yolos_swaps(model: Any) -> list[Swap]:
    embeddings, encoder = model.vit.embeddings, model.vit.encoder
    last = _YolosLastLayer(encoder.layer[-1], model.config.num_detection_tokens)
    swaps: list[Swap] = [
        (encoder.layer, str(len(encoder.layer) - 1), last),
        (embeddings, "interpolation", _Remembered(embeddings.interpolation)),
    ]
    if encoder.interpolation is not None:
        swaps.append((encoder, "interpolation", _Remembered(encoder.interpolation)))
    return swaps


def _skip(layers: nn.ModuleList) -> Iterator[Swap]:
    """All but the last, for the probe's speed."""
    return ((layers, str(index), _Skipped()) for index in range(len(layers) - 1))


def _kind(model: Any) -> tuple[type, str, torch.dtype]:
    return type(model), model.device.type, model.dtype


class _Skipped(nn.Module):
    def forward(self, hidden: Tensor, *_: Any, **__: Any) -> Tensor:
        return hidden


class _ClipLastLayer(nn.Module):
    """A ``CLIPEncoderLayer`` for the class token."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, hidden: Tensor, *_: Any, **__: Any) -> Tensor:
        """[B, N, C] -> [B, 1, C]"""
        layer, attention = self.layer, self.layer.self_attn
        normed = layer.layer_norm1(hidden)
        attended = _attention(
            attention.q_proj(normed[:, :1]),
            attention.k_proj(normed),
            attention.v_proj(normed),
            attention.num_heads,
        )
        token = hidden[:, :1] + attention.out_proj(attended)
        return token + layer.mlp(layer.layer_norm2(token))


class _YolosLastLayer(nn.Module):
    """A ``YolosLayer`` for the detection tokens, which are the last ones."""

    def __init__(self, layer: Any, num_tokens: int) -> None:
        super().__init__()
        self.layer = layer
        self.num_tokens = num_tokens

    def forward(self, hidden: Tensor, *_: Any, **__: Any) -> Tensor:
        """[B, N, C] -> [B, R, C] with R = ``num_tokens``"""
        layer, attention = self.layer, self.layer.attention.attention
        normed = layer.layernorm_before(hidden)
        attended = _attention(
            attention.query(normed[:, -self.num_tokens :]),
            attention.key(normed),
            attention.value(normed),
            attention.num_attention_heads,
        )
        tokens = hidden[:, -self.num_tokens :] + layer.attention.output.dense(attended)
        return layer.output(layer.intermediate(layer.layernorm_after(tokens)), tokens)


class _Remembered(nn.Module):
    """Interpolated position embeddings of the last ``_SIZES`` image sizes."""

    def __init__(self, interpolation: Any) -> None:
        super().__init__()
        self.interpolation = interpolation
        self._known: dict[tuple[int, int], Tensor] = {}

    def forward(self, *arguments: Any) -> Tensor:
        """The last argument is the image's (height, width)."""
        size = arguments[-1]
        if size not in self._known:
            if len(self._known) == _SIZES:
                self._known.pop(next(iter(self._known)))
            self._known[size] = self.interpolation(*arguments)
        return self._known[size]


def _attention(q: Tensor, k: Tensor, v: Tensor, num_heads: int) -> Tensor:
    """q [B, R, C], k and v [B, N, C] -> [B, R, C]"""
    q, k, v = (x.unflatten(-1, (num_heads, -1)).transpose(1, 2) for x in (q, k, v))
    return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
