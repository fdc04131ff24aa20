"""TinyViT-5M, the image encoder of MobileSAM, for inference.

A convolutional patch embedding, a stage of inverted bottlenecks (MBConv), then three stages of
window attention, each block with a depthwise convolution between attention and MLP (TinyViT, Wu
et al. 2022, section 3.3 and appendix B). MobileSAM (Zhang et al. 2023, section 3) does not
downsample before the last stage, so that the output has SAM's stride of 16, and adds SAM's neck.

Feature maps are [batch, channels, height, width]; attribute names are the keys of the published
weights.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from segment_anything.modeling.common import LayerNorm2d
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

WIDTHS = (64, 128, 160, 320)
DEPTHS = (2, 2, 6, 2)
HEADS = (0, 4, 5, 10)
"""Attention heads of each stage; the first stage has none."""
WINDOWS = (0, 7, 14, 7)
"""Side of the attention windows of each stage, in positions of its feature map."""
STRIDES = (2, 2, 1)
"""Strides of the downsampling between stages; with the patch embedding's 4 they make 16."""
EXPANSION = 4
"""Hidden width of an MBConv or an MLP, over its width."""
CLASSIFIER = ("norm_head.", "head.")
"""Prefixes of classifier weights, which the published files contain and SAM does not use."""


class TinyViT(nn.Module):
    """Image encoder with the interface of segment-anything's ``ImageEncoderViT``.

    Args:
        img_size: side of the square input in pixels, a multiple of 16.
        out_chans: width of the image embedding.
    """

    def __init__(self, *, img_size: int = 1024, out_chans: int = 256) -> None:
        super().__init__()
        if img_size % 16:
            raise ValueError(f"img_size: found {img_size}, want a multiple of 16")
        self.img_size = img_size
        self.patch_embed = _PatchEmbedding(WIDTHS[0])
        self.layers = nn.ModuleList(_Stage(index) for index in range(len(WIDTHS)))
        self.neck = nn.Sequential(
            nn.Conv2d(WIDTHS[-1], out_chans, 1, bias=False),
            LayerNorm2d(out_chans),
            nn.Conv2d(out_chans, out_chans, 3, padding=1, bias=False),
            LayerNorm2d(out_chans),
        )

    def forward(self, x: Float[Tensor, "b 3 side side"]) -> Float[Tensor, "b out h h"]:
        """Image embeddings of normalised pixels; h is side / 16."""
        x = self.patch_embed(x)
        for stage in self.layers:
            x = stage(x)
        return self.neck(x)


class _ConvBatchNorm(nn.Sequential):
    """A convolution with padding for an output of input size / stride, then batch norm."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        *,
        stride: int = 1,
        depthwise: bool = False,
    ) -> None:
        super().__init__()
        groups = inputs if depthwise else 1
        self.c = nn.Conv2d(
            inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False
        )
        self.bn = nn.BatchNorm2d(outputs)


class _PatchEmbedding(nn.Module):
    """Two convolutions of stride 2: [b, 3, side, side] -> [b, width, side / 4, side / 4]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.seq = nn.Sequential(
            _ConvBatchNorm(3, width // 2, 3, stride=2),
            nn.GELU(),
            _ConvBatchNorm(width // 2, width, 3, stride=2),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.seq(x)


class _Stage(nn.Module):
    """Blocks of one width, then downsampling to the next stage's width and resolution."""

    def __init__(self, index: int) -> None:
        super().__init__()
        width = WIDTHS[index]
        self.blocks = nn.ModuleList(
            _TinyVitBlock(width, HEADS[index], WINDOWS[index]) if index else _MBConv(width)
            for _ in range(DEPTHS[index])
        )
        last = index + 1 == len(WIDTHS)
        self.downsample = None if last else _PatchMerging(width, WIDTHS[index + 1], STRIDES[index])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x if self.downsample is None else self.downsample(x)


class _InvertedBottleneck(nn.Module):
    """1x1 expansion, depthwise 3x3 and 1x1 projection, each with batch norm."""

    def __init__(self, inputs: int, hidden: int, outputs: int, *, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = _ConvBatchNorm(inputs, hidden)
        self.conv2 = _ConvBatchNorm(hidden, hidden, 3, stride=stride, depthwise=True)
        self.conv3 = _ConvBatchNorm(hidden, outputs)
        self.act = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        return self.conv3(self.act(self.conv2(self.act(self.conv1(x)))))


class _PatchMerging(_InvertedBottleneck):
    """Downsampling between stages: an inverted bottleneck without a residual connection."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__(inputs, outputs, outputs, stride=stride)


class _MBConv(_InvertedBottleneck):
    """An inverted bottleneck with a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__(width, EXPANSION * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x + super().forward(x))


class _TinyVitBlock(nn.Module):
    """Window attention, a depthwise 3x3 convolution and an MLP."""

    def __init__(self, width: int, num_heads: int, window_size: int) -> None:
        super().__init__()
        self.window_size = window_size
        self.attn = _WindowAttention(width, num_heads, window_size)
        self.local_conv = _ConvBatchNorm(width, width, 3, depthwise=True)
        self.mlp = _Mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.local_conv(x + self._window_attention(x))
        return x + self.mlp(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    def _window_attention(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """Window partition, attention, window unpartition.

        A feature map that is not a multiple of the window is padded with zeros, and the padding
        takes part in the attention, as in training.
        """
        side = self.window_size
        b, c, h, w = x.shape
        rows, columns = -(-h // side), -(-w // side)
        x = pad(x, (0, columns * side - w, 0, rows * side - h))
        x = x.view(b, c, rows, side, columns, side).permute(0, 2, 4, 3, 5, 1)
        x = self.attn(x.reshape(b * rows * columns, side * side, c))
        x = x.view(b, rows, columns, side, side, c).permute(0, 5, 1, 3, 2, 4)
        return x.reshape(b, c, rows * side, columns * side)[:, :, :h, :w]


class _WindowAttention(nn.Module):
    """Self-attention of a window's tokens with a learnt attention bias for every offset.

    Two positions that are dr rows and dc columns apart, in either direction, have the bias number
    ``dr * window_size + dc`` of each head, as in LeViT (Graham et al. 2021, section 4.2.4).
    """

    def __init__(self, width: int, num_heads: int, window_size: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.attention_biases = nn.Parameter(torch.zeros(num_heads, window_size * window_size))
        positions = torch.cartesian_prod(torch.arange(window_size), torch.arange(window_size))
        offsets = (positions[:, None] - positions[None]).abs()
        bias_index = offsets[..., 0] * window_size + offsets[..., 1]
        self.register_buffer("bias_index", bias_index, persistent=False)
        self.bias_index: Tensor

    def forward(self, x: Float[Tensor, "windows n c"]) -> Float[Tensor, "windows n c"]:
        windows, n, c = x.shape
        qkv = self.qkv(self.norm(x)).view(windows, n, self.num_heads, 3, -1)
        q, k, v = qkv.permute(3, 0, 2, 1, 4)  # each [windows, heads, n, head width]
        bias = self.attention_biases[:, self.bias_index].to(q.dtype)  # [heads, n, n]
        out = scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.proj(out.transpose(1, 2).reshape(windows, n, c))


class _Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, EXPANSION * width)
        self.fc2 = nn.Linear(EXPANSION * width, width)
        self.act = nn.GELU()

    def forward(self, x: Float[Tensor, "... c"]) -> Float[Tensor, "... c"]:
        return self.fc2(self.act(self.fc1(self.norm(x))))
