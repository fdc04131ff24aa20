"""SAM's image encoder for batches of images, with less memory traffic than the published one.

The same weights and the same function: windows are padded after the projection to queries, keys
and values (of padding, these are the biases), and attention goes through torch's fused kernel
with the decomposed relative positions as its bias, for a bounded number of heads at a time, where
the published code writes every [heads, 4096, 4096] matrix four times over.

Shapes: B images or windows, h and w their sides in patches, C the width, N = h * w, H heads of
width D.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_BIAS_ELEMENTS = {"cpu": 1 << 25, "cuda": 1 << 28}
"""Largest attention bias made at a time: what stays near the caches, or a gigabyte in float32."""


def encode(encoder: Any, images: Tensor) -> Tensor:
    """Embeddings [B, C, h, w] of preprocessed images [B, 3, S, S].

    ``encoder`` is segment-anything's ``ImageEncoderViT`` or any other module of that contract;
    others are simply called.
    """
    if not hasattr(encoder, "blocks"):
        return encoder(images)
    x = encoder.patch_embed(images)
    if encoder.pos_embed is not None:
        x = x + encoder.pos_embed
    for block in encoder.blocks:
        x = x + _attend(block, block.norm1(x))
        x = x + block.mlp(block.norm2(x))
    return encoder.neck(x.permute(0, 3, 1, 2))


def _attend(block: Any, x: Tensor) -> Tensor:
    """Attention of one block, [B, h, w, C] -> the same; in windows where the block has them."""
    attention, side = block.attn, block.window_size
    _, height, width, _ = x.shape
    projected = attention.qkv(x)  # [B, h, w, 3 * C]
    if side:
        projected = _windows(projected, side, attention.qkv.bias)
    seen = _attention(attention, projected)
    if side:
        seen = _whole(seen, side, height, width)
    return attention.proj(seen)


def _windows(projected: Tensor, side: int, padding: Tensor) -> Tensor:
    """[B, h, w, 3C] -> [B * windows, side, side, 3C]; what lies outside holds ``padding``."""
    images, height, width, channels = projected.shape
    rows, columns = -(-height // side), -(-width // side)
    if (rows * side, columns * side) != (height, width):
        whole = padding.to(projected.dtype).expand(images, rows * side, columns * side, -1).clone()
        whole[:, :height, :width] = projected
        projected = whole
    cut = projected.view(images, rows, side, columns, side, channels)
    return cut.transpose(2, 3).reshape(-1, side, side, channels)


def _whole(windows: Tensor, side: int, height: int, width: int) -> Tensor:
    """The inverse of :func:`_windows`, without what lay outside."""
    rows, columns = -(-height // side), -(-width // side)
    cut = windows.view(-1, rows, columns, side, side, windows.shape[-1])
    joined = cut.transpose(2, 3).flatten(3, 4).flatten(1, 2)
    return joined[:, :height, :width]


def _attention(attention: Any, projected: Tensor) -> Tensor:
    """[B, h, w, 3C] -> [B, h, w, C] before the output projection."""
    count, height, width, _ = projected.shape
    split = projected.view(count, height * width, 3, attention.num_heads, -1)
    queries, keys, values = split.permute(2, 0, 3, 1, 4).unbind(0)  # [B, H, N, D]
    if not attention.use_rel_pos:
        seen = functional.scaled_dot_product_attention(queries, keys, values)
    else:
        seen = _with_positions(attention, queries, keys, values, (height, width))
    return seen.transpose(1, 2).reshape(count, height, width, -1)


def _with_positions(
    attention: Any, queries: Tensor, keys: Tensor, values: Tensor, shape: tuple[int, int]
) -> Tensor:
    """Attention whose scores carry decomposed relative positions (SAM, section A)."""
    count, heads, length, _ = queries.shape
    vertical = _table(attention.rel_pos_h, shape[0]).to(queries.dtype)  # [h, h, D]
    horizontal = _table(attention.rel_pos_w, shape[1]).to(queries.dtype)
    limit = _BIAS_ELEMENTS.get(queries.device.type, _BIAS_ELEMENTS["cuda"])
    heads_at_once = max(1, min(heads, limit // length**2))
    images_at_once = max(1, limit // (heads_at_once * length**2))
    seen = torch.empty_like(values)
    for first in range(0, count, images_at_once):
        for head in range(0, heads, heads_at_once):
            part = (slice(first, first + images_at_once), slice(head, head + heads_at_once))
            q = queries[part].unflatten(2, shape)  # [B, H, h, w, D]
            rows = torch.einsum("bnhwd,hkd->bnhwk", q, vertical)
            columns = torch.einsum("bnhwd,wkd->bnhwk", q, horizontal)
            bias = rows.unsqueeze(-1) + columns.unsqueeze(-2)  # [B, H, h, w, h, w]
            seen[part] = functional.scaled_dot_product_attention(
                queries[part],
                keys[part],
                values[part],
                attn_mask=bias.flatten(4, 5).flatten(2, 3),
            )
    return seen


def _table(embeddings: Tensor, side: int) -> Tensor:
    """[2 * side - 1, D] -> [side, side, D]: the embedding of every distance.

    The published code stretches tables of other lengths; glit builds models with fitting ones.
    """
    assert len(embeddings) == 2 * side - 1, f"{len(embeddings)} distances for {side} positions"
    index = torch.arange(side, device=embeddings.device)
    return embeddings[index[:, None] - index[None, :] + side - 1]
