"""SAM's image encoder for batches of images, with less memory traffic than the published one.

The weights and the function are those of ``ImageEncoderViT``. Two things are done in another way.
Window partition pads after the projection to q, k and v instead of before (padding is zero, so
its q, k and v are the biases). Attention runs in torch's fused kernel, which takes the decomposed
relative position embeddings as its mask, for a bounded number of heads at a time; the published
code writes the [heads, 4096, 4096] attention scores to memory four times.

Shapes: B images or windows, h and w their sides in patches, C the embedding width, N = h * w,
H heads of width D.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_REL_POS_ELEMENTS = {"cpu": 1 << 25, "cuda": 1 << 28}
"""Most elements of relative position scores at a time: 128 MiB in float32, on a GPU 1 GiB."""


def encode(encoder: Any, images: Tensor) -> Tensor:
    """Image embeddings [B, C, h, w] of preprocessed images [B, 3, S, S].

    ``encoder`` is segment-anything's ``ImageEncoderViT``; one without ``blocks`` (TinyViT) is
    called as it is.
    """
    if not hasattr(encoder, "blocks"):
        return encoder(images)
    x = encoder.patch_embed(images)
    if encoder.pos_embed is not None:
        x = x + encoder.pos_embed
    for block in encoder.blocks:
        x = x + _window_attention(block, block.norm1(x))
        x = x + block.mlp(block.norm2(x))
    return encoder.neck(x.permute(0, 3, 1, 2))


def published_encoder(encoder: Any, images: Tensor) -> Tensor:
    """Encode images as :func:`encode` does, by segment-anything's own module."""
    return encoder(images)


class _InFloat32(nn.Module):
    """A module without autocast, its input cast."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return self.module(x.float())


def keep_norms_in_float32(encoder: nn.Module) -> None:
    """Take segment-anything's own layer norms out of autocast, in place.

    They square their input. In float16 what is larger than 256 becomes infinite and the norm's
    output zero, which no check for infinity sees: MobileSAM's embedding reaches 567.
    """
    from segment_anything.modeling.common import LayerNorm2d

    for parent in list(encoder.modules()):
        for name, module in list(parent.named_children()):
            if isinstance(module, LayerNorm2d):
                setattr(parent, name, _InFloat32(module))


def _window_attention(block: Any, x: Tensor) -> Tensor:
    """[B, h, w, C] -> the same; within windows, or global where ``window_size`` is 0."""
    attention, window_size = block.attn, block.window_size
    _, height, width, _ = x.shape
    qkv = attention.qkv(x)  # [B, h, w, 3 * C]
    if window_size:
        qkv = _window_partition(qkv, window_size, attention.qkv.bias)
    out = _attention(attention, qkv)
    if window_size:
        out = _window_unpartition(out, window_size, height, width)
    return attention.proj(out)


def _window_partition(qkv: Tensor, window_size: int, padding: Tensor) -> Tensor:
    """[B, h, w, 3C] -> [B * windows, window_size, window_size, 3C]; ``padding`` [3C] fills up."""
    batch, height, width, channels = qkv.shape
    rows, columns = -(-height // window_size), -(-width // window_size)
    padded_height, padded_width = rows * window_size, columns * window_size
    if (padded_height, padded_width) != (height, width):
        padded = padding.to(qkv.dtype).expand(batch, padded_height, padded_width, -1).clone()
        padded[:, :height, :width] = qkv
        qkv = padded
    windows = qkv.view(batch, rows, window_size, columns, window_size, channels)
    return windows.transpose(2, 3).reshape(-1, window_size, window_size, channels)


def _window_unpartition(windows: Tensor, window_size: int, height: int, width: int) -> Tensor:
    """The inverse of :func:`_window_partition`, without the padding."""
    rows, columns = -(-height // window_size), -(-width // window_size)
    windows = windows.view(-1, rows, columns, window_size, window_size, windows.shape[-1])
    padded = windows.transpose(2, 3).flatten(3, 4).flatten(1, 2)
    return padded[:, :height, :width]


def _attention(attention: Any, qkv: Tensor) -> Tensor:
    """[B, h, w, 3C] -> [B, h, w, C] before the output projection."""
    batch, height, width, _ = qkv.shape
    qkv = qkv.view(batch, height * width, 3, attention.num_heads, -1)
    q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each [B, H, N, D]
    if not attention.use_rel_pos:
        out = functional.scaled_dot_product_attention(q, k, v)
    else:
        out = _attention_with_rel_pos(attention, q, k, v, (height, width))
    return out.transpose(1, 2).reshape(batch, height, width, -1)


def _attention_with_rel_pos(
    attention: Any, q: Tensor, k: Tensor, v: Tensor, size: tuple[int, int]
) -> Tensor:
    """Attention [B, H, N, D] with decomposed relative positions (SAM, section A).

    Args:
        attention: the published module.
        q: [B, H, N, D], as are k and v.
        k: keys.
        v: values.
        size: h and w.
    """
    batch, num_heads, length, _ = q.shape
    rel_pos_h = _rel_pos_table(attention.rel_pos_h, size[0]).to(q.dtype)  # [h, h, D]
    rel_pos_w = _rel_pos_table(attention.rel_pos_w, size[1]).to(q.dtype)  # [w, w, D]
    limit = _REL_POS_ELEMENTS.get(q.device.type, _REL_POS_ELEMENTS["cuda"])
    heads_at_once = max(1, min(num_heads, limit // length**2))
    images_at_once = max(1, limit // (heads_at_once * length**2))
    out = torch.empty_like(v)
    for image in range(0, batch, images_at_once):
        for head in range(0, num_heads, heads_at_once):
            part = (slice(image, image + images_at_once), slice(head, head + heads_at_once))
            q_map = q[part].unflatten(2, size)  # [B, H, h, w, D]
            scores_h = torch.einsum("bnhwd,hkd->bnhwk", q_map, rel_pos_h)
            scores_w = torch.einsum("bnhwd,wkd->bnhwk", q_map, rel_pos_w)
            scores = scores_h.unsqueeze(-1) + scores_w.unsqueeze(-2)  # [B, H, h, w, h, w]
            out[part] = functional.scaled_dot_product_attention(
                q[part], k[part], v[part], attn_mask=scores.flatten(4, 5).flatten(2, 3)
            )
    return out


def _rel_pos_table(rel_pos: Tensor, side: int) -> Tensor:
    """[2 * side - 1, D] -> [side, side, D]: the embedding of the offset of every two positions.

    The published ``get_rel_pos`` interpolates tables of other lengths; ``build_sam`` makes none.
    """
    assert len(rel_pos) == 2 * side - 1, f"{len(rel_pos)} offsets for {side} positions"
    index = torch.arange(side, device=rel_pos.device)
    return rel_pos[index[:, None] - index[None, :] + side - 1]
