"""TinyViT-5M, the image encoder of MobileSAM, for inference.

A stem and a stage of inverted bottlenecks, then three stages of windowed attention, each block
with a depthwise convolution between attention and MLP (TinyViT, Wu et al. 2022, section 3.3 and
appendix B). MobileSAM (Zhang et al. 2023, section 3) keeps the last stage at the resolution of
the one before, so that the output has SAM's stride of 16, and puts SAM's neck on top.

Maps run through the network as [batch, channels, height, width]; the module names are those of
the published weights.
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
"""Of the attention stages; the first stage is convolutions."""
WINDOWS = (0, 7, 14, 7)
"""Side of the attention windows, in cells of the stage's map."""
STRIDES = (2, 2, 1)
"""Of the steps between stages; after the stem's 4 they make 16."""
EXPANSION = 4
CLASSIFIER = ("norm_head.", "head.")
"""How the names of weights begin that published files carry along and SAM has no use for."""


class TinyViT(nn.Module):
    """Pixels to image embeddings, as SAM's prompt encoder and mask decoder want them.

    Args:
        img_size: side of the square input in pixels, a multiple of 16; the name is the one that
            segment-anything reads.
        out_chans: width of the embedding.
    """

    def __init__(self, *, img_size: int = 1024, out_chans: int = 256) -> None:
        super().__init__()
        if img_size % 16:
            raise ValueError(f"img_size: found {img_size}, want a multiple of 16")
        self.img_size = img_size
        self.patch_embed = _Stem(WIDTHS[0])
        self.layers = nn.ModuleList(_Stage(index) for index in range(len(WIDTHS)))
        self.neck = nn.Sequential(
            nn.Conv2d(WIDTHS[-1], out_chans, 1, bias=False),
            LayerNorm2d(out_chans),
            nn.Conv2d(out_chans, out_chans, 3, padding=1, bias=False),
            LayerNorm2d(out_chans),
        )

    def forward(self, x: Float[Tensor, "b 3 side side"]) -> Float[Tensor, "b out cells cells"]:
        """Embeddings of normalised pixels; a cell is 16 pixels wide."""
        x = self.patch_embed(x)
        for stage in self.layers:
            x = stage(x)
        return self.neck(x)


class _NormedConv(nn.Sequential):
    """A convolution that keeps the map's size (over the stride), then batch normalisation."""

    def __init__(
        self, inputs: int, outputs: int, side: int = 1, *, stride: int = 1, depthwise: bool = False
    ) -> None:
        super().__init__()
        groups = inputs if depthwise else 1
        self.c = nn.Conv2d(
            inputs, outputs, side, stride, padding=side // 2, groups=groups, bias=False
        )
        self.bn = nn.BatchNorm2d(outputs)


class _Stem(nn.Module):
    """Two strided convolutions: a cell of the map is 4 pixels wide."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.seq = nn.Sequential(
            _NormedConv(3, width // 2, 3, stride=2),
            nn.GELU(),
            _NormedConv(width // 2, width, 3, stride=2),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.seq(x)


class _Stage(nn.Module):
    """Blocks of one width, then the step to the next one's width and resolution."""

    def __init__(self, index: int) -> None:
        super().__init__()
        width = WIDTHS[index]
        self.blocks = nn.ModuleList(
            _AttentionBlock(width, HEADS[index], WINDOWS[index]) if index else _ConvBlock(width)
            for _ in range(DEPTHS[index])
        )
        last = index + 1 == len(WIDTHS)
        self.downsample = None if last else _Step(width, WIDTHS[index + 1], STRIDES[index])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x if self.downsample is None else self.downsample(x)


class _Bottleneck(nn.Module):
    """Widen, look around, narrow: a 1x1, a depthwise 3x3 and a 1x1 convolution."""

    def __init__(self, inputs: int, middle: int, outputs: int, *, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = _NormedConv(inputs, middle)
        self.conv2 = _NormedConv(middle, middle, 3, stride=stride, depthwise=True)
        self.conv3 = _NormedConv(middle, outputs)
        self.act = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        return self.conv3(self.act(self.conv2(self.act(self.conv1(x)))))


class _Step(_Bottleneck):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__(inputs, outputs, outputs, stride=stride)


class _ConvBlock(_Bottleneck):
    def __init__(self, width: int) -> None:
        super().__init__(width, EXPANSION * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x + super().forward(x))


class _AttentionBlock(nn.Module):
    """Attention within windows, a depthwise convolution across them, an MLP per cell."""

    def __init__(self, width: int, num_heads: int, window: int) -> None:
        super().__init__()
        self.window = window
        self.attn = _WindowAttention(width, num_heads, window)
        self.local_conv = _NormedConv(width, width, 3, depthwise=True)
        self.mlp = _Mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.local_conv(x + self._attend(x))
        return x + self.mlp(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    def _attend(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """Attention in each window; a map that windows do not fill is padded with zeros.

        The padding takes part in the attention, as it did in training.
        """
        side = self.window
        b, c, h, w = x.shape
        rows, columns = -(-h // side), -(-w // side)
        x = pad(x, (0, columns * side - w, 0, rows * side - h))
        x = x.view(b, c, rows, side, columns, side).permute(0, 2, 4, 3, 5, 1)
        x = self.attn(x.reshape(b * rows * columns, side * side, c))
        x = x.view(b, rows, columns, side, side, c).permute(0, 5, 1, 3, 2, 4)
        return x.reshape(b, c, rows * side, columns * side)[:, :, :h, :w]


class _WindowAttention(nn.Module):
    """Self-attention with a learnt bias for every distance between two cells of a window.

    The bias of two cells dr rows and dc columns apart is number ``dr * window + dc`` of a head's
    (the signs do not matter), following LeViT (Graham et al. 2021, section 4.2.4).
    """

    def __init__(self, width: int, num_heads: int, window: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.attention_biases = nn.Parameter(torch.zeros(num_heads, window * window))
        cells = torch.cartesian_prod(torch.arange(window), torch.arange(window))
        apart = (cells[:, None] - cells[None]).abs()
        index = apart[..., 0] * window + apart[..., 1]
        self.register_buffer("bias_index", index, persistent=False)
        self.bias_index: Tensor

    def forward(self, x: Float[Tensor, "n cells c"]) -> Float[Tensor, "n cells c"]:
        n, cells, width = x.shape
        per_head = self.qkv(self.norm(x)).view(n, cells, self.num_heads, 3, -1)
        query, key, value = per_head.permute(3, 0, 2, 1, 4)  # each [n, heads, cells, head width]
        bias = self.attention_biases[:, self.bias_index].to(query.dtype)
        mixed = scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return self.proj(mixed.transpose(1, 2).reshape(n, cells, width))


class _Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, EXPANSION * width)
        self.fc2 = nn.Linear(EXPANSION * width, width)
        self.act = nn.GELU()

    def forward(self, x: Float[Tensor, "... c"]) -> Float[Tensor, "... c"]:
        return self.fc2(self.act(self.fc1(self.norm(x))))
