"""SAM's mask decoder for many single points, with the same mathematics and less arithmetic.

The published decoder projects all positions of the image embedding to queries, keys and values
for every point, six times over. There are 4,096 positions and only seven tokens, so the
projections are moved to the tokens' side here: ``q . (W x) = (W^T q) . x`` and
``sum(w (W x)) = W sum(w x)``, and in the first layer, where the positions are still the same
for all points of an image, they are projected once. Points whose masks are all unwanted by their
predicted IoU are never upscaled. The result differs from the published order of operations
by rounding only (Segment Anything, Kirillov et al. 2023, section A and figure 14).

Shapes: I images, P points of each, T tokens of a point (IoU, four masks, the point, padding),
N = h * w positions of the image embedding, C its width, H heads of width D, M = 3 masks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from glit.backends.onednn import linear

if TYPE_CHECKING:
    from segment_anything.modeling import Sam


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSide:
    """What the decoder needs of a batch of images, the same for all of their points."""

    positions: Tensor
    """[I, N, C] image embeddings with the embedding for "no mask given" added."""
    keys: Tensor
    """[I, H, D, N] keys of the first layer's attention of tokens to the image."""
    values: Tensor
    """[I, H, N, D] values of the same."""
    queries: Tensor
    """[I, H, D, N] queries of the first layer's attention of the image to tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """What the transformer made of a block of points."""

    tokens: Tensor
    """[I, P, T, C]"""
    positions: Tensor
    """[I * P, N, C]"""
    predicted_iou: Tensor
    """[I, P, M] float32."""


class PointDecoder:
    """Masks for single foreground points; three a point (``multimask_output``).

    Args:
        model: in evaluation mode, on its device.
        dtype: of the image's side; predicted IoUs and mask logits come back in float32.
    """

    def __init__(self, model: Sam, dtype: torch.dtype) -> None:
        self._prompts: Any = model.prompt_encoder
        self._heads: Any = model.mask_decoder
        self._dtype = dtype
        transformer = self._heads.transformer
        place = self._prompts.get_dense_pe()[0].flatten(1).T  # [N, C]
        first, second = (_Layer(block, place, dtype) for block in transformer.layers)
        self._place, self._first, self._second = place, first, second
        self._final = _TokenToImage(transformer.final_attn_token_to_image, place, dtype)
        self._final_norm = transformer.norm_final_attn
        self._upscale = _Upscaling(self._heads.output_upscaling, dtype)
        self._output_tokens = torch.cat(
            [self._heads.iou_token.weight, self._heads.mask_tokens.weight]
        )

    def prepare(self, embeddings: Tensor) -> ImageSide:
        """The images' share of the first layer. embeddings: [I, C, h, w]."""
        no_mask = self._prompts.no_mask_embed.weight.view(1, -1, 1, 1)
        positions = (embeddings.float() + no_mask).flatten(2).transpose(1, 2)  # [I, N, C]
        placed = positions + self._place
        keys, values = self._first.to_image.prepare(positions, placed)
        return ImageSide(
            positions=positions.to(self._dtype).contiguous(),
            keys=keys,
            values=values,
            queries=self._first.to_tokens.prepare(placed),
        )

    def decode(self, side: ImageSide, points: Tensor) -> Decoded:
        """Run the transformer.

        Args:
            side: of I images.
            points: [I, P, 2] x and y in pixels of the encoder's input.
        """
        given = self._tokens(points)
        tokens, positions = self._first.shared(given, side)
        tokens, positions = self._second.own(tokens, given, positions)
        tokens = self._final_norm(tokens + self._final.own(tokens + given, positions))
        return Decoded(
            tokens=tokens,
            positions=positions,
            predicted_iou=self._heads.iou_prediction_head(tokens[:, :, 0])[..., 1:],
        )

    def masks(self, decoded: Decoded, wanted: Tensor) -> Tensor:
        """Mask logits [K, 4h, 4w] of the K wanted masks, in the order of points, then masks.

        Args:
            decoded: of a block of points.
            wanted: [I, P, M] bool.
        """
        wanted = wanted.flatten(0, 1)
        rows = wanted.any(dim=1)
        tokens = decoded.tokens.flatten(0, 1)[rows]
        mixing = torch.stack(
            [
                self._heads.output_hypernetworks_mlps[index](tokens[:, 1 + index])
                for index in range(1, 4)
            ],
            dim=1,
        )
        positions = decoded.positions if bool(rows.all()) else decoded.positions[rows]
        return self._upscale(positions, mixing, self._prompts.image_embedding_size)[wanted[rows]]

    def _tokens(self, points: Tensor) -> Tensor:
        """[I, P, T, C]: the output tokens, then the point's own."""
        labels = torch.ones(points.shape[0] * points.shape[1], 1, device=points.device)
        sparse = self._prompts._embed_points(points.reshape(-1, 1, 2), labels, pad=True)
        sparse = sparse.view(*points.shape[:2], 2, -1)
        output = self._output_tokens.expand(*points.shape[:2], -1, -1)
        return torch.cat([output, sparse], dim=2)


class _TokenToImage:
    """Tokens attend to the positions of their own point's image."""

    def __init__(self, attention: Any, place: Tensor, dtype: torch.dtype) -> None:
        self._attention = attention
        self._dtype = dtype
        self._heads = attention.num_heads
        self._scale = (attention.internal_dim // self._heads) ** -0.5
        self._key = _per_head(attention.k_proj.weight, self._heads)
        self._value = _per_head(attention.v_proj.weight, self._heads)
        # a key's bias adds the same to all positions and does not survive the softmax
        self._place = torch.einsum("hdc,nc->hdn", self._key, place.float()).to(dtype)

    def prepare(self, positions: Tensor, placed: Tensor) -> tuple[Tensor, Tensor]:
        """Keys [I, H, D, N] and values [I, H, N, D] of positions that all points share."""
        keys = _split(self._attention.k_proj(placed), self._heads).transpose(-1, -2)
        values = _split(self._attention.v_proj(positions), self._heads)
        return keys.to(self._dtype).contiguous(), values.to(self._dtype).contiguous()

    def shared(self, queries: Tensor, side: ImageSide) -> Tensor:
        """[I, P, T, C] -> the same, over positions that all points of an image share."""
        num_points, num_tokens = queries.shape[1:3]
        asking = self._queries(queries).permute(0, 2, 1, 3, 4).flatten(2, 3)  # [I, H, P * T, D]
        weights = (asking.to(self._dtype) @ side.keys).softmax(dim=-1)
        seen = (weights @ side.values).float().unflatten(2, (num_points, num_tokens))
        return self._attention.out_proj(seen.permute(0, 2, 3, 1, 4).flatten(3))

    def own(self, queries: Tensor, positions: Tensor) -> Tensor:
        """[I, P, T, C] -> the same, over each point's own positions [I * P, N, C]."""
        asking = self._queries(queries)
        scores = _scores(asking, self._key, self._place, positions)
        seen = (scores.softmax(dim=-1) @ positions).float()
        seen = seen.view(*asking.shape[:4], -1)  # [I, P, H, T, C]
        values = torch.einsum("iphtc,hdc->ipthd", seen, self._value).flatten(3)
        return self._attention.out_proj(values + self._attention.v_proj.bias)

    def _queries(self, queries: Tensor) -> Tensor:
        """[I, P, H, T, D]"""
        return _split(self._attention.q_proj(queries) * self._scale, self._heads)


class _ImageToToken:
    """Positions attend to the tokens of their point, and are changed by what they see."""

    def __init__(self, attention: Any, norm: nn.LayerNorm, place: Tensor, dtype: Any) -> None:
        self._attention = attention
        self._dtype = dtype
        self._heads = attention.num_heads
        self._scale = (attention.internal_dim // self._heads) ** -0.5
        self._query = _per_head(attention.q_proj.weight, self._heads)
        bias = attention.q_proj.bias.view(self._heads, -1, 1)
        self._place = (torch.einsum("hdc,nc->hdn", self._query, place.float()) + bias).to(dtype)
        self._out = _per_head(attention.out_proj.weight.T, self._heads)
        self._norm = (norm.weight.to(dtype), norm.bias.to(dtype), norm.eps)

    def prepare(self, placed: Tensor) -> Tensor:
        """Queries [I, H, D, N] of positions that all points share."""
        queries = _split(self._attention.q_proj(placed), self._heads).transpose(-1, -2)
        return queries.to(self._dtype).contiguous()

    def shared(self, keys: Tensor, values: Tensor, side: ImageSide) -> Tensor:
        """New positions [I * P, N, C] out of those that all points of an image share."""
        told = self._keys(keys)  # [I, P, H, T, D]
        flat = told.permute(0, 2, 1, 3, 4).flatten(2, 3).to(self._dtype)  # [I, H, P * T, D]
        scores = (flat @ side.queries).unflatten(2, told.shape[1:4:2]).transpose(1, 2)
        weights = scores.softmax(dim=3).flatten(2, 3).flatten(0, 1)  # [I * P, H * T, N]
        before = side.positions.unsqueeze(1).expand(-1, told.shape[1], -1, -1).flatten(0, 1)
        after = torch.baddbmm(before, weights.transpose(1, 2), self._values(values))
        return self._normalised(after)

    def own(self, keys: Tensor, values: Tensor, positions: Tensor) -> Tensor:
        """New positions [I * P, N, C] out of each point's own."""
        told = self._keys(keys)
        scores = _scores(told, self._query, self._place, positions)
        weights = scores.unflatten(1, told.shape[2:4]).softmax(dim=2).flatten(1, 2)
        positions.baddbmm_(weights.transpose(1, 2), self._values(values))
        return self._normalised(positions)

    def _keys(self, keys: Tensor) -> Tensor:
        return _split(self._attention.k_proj(keys) * self._scale, self._heads)

    def _values(self, values: Tensor) -> Tensor:
        """[I * P, H * T, C]: what a position takes on from each token through each head."""
        told = _split(self._attention.v_proj(values), self._heads)
        mixed = torch.einsum("iphtd,hdc->iphtc", told, self._out)
        # the weights of a head add up to one, so the bias may ride on any of them
        mixed[:, :, 0] += self._attention.out_proj.bias
        return mixed.flatten(2, 3).flatten(0, 1).to(self._dtype)

    def _normalised(self, positions: Tensor) -> Tensor:
        weight, bias, eps = self._norm
        return functional.layer_norm(positions, weight.shape, weight, bias, eps)


class _Layer:
    """A block of the two-way transformer."""

    def __init__(self, block: Any, place: Tensor, dtype: torch.dtype) -> None:
        self._block = block
        self.to_image = _TokenToImage(block.cross_attn_token_to_image, place, dtype)
        self.to_tokens = _ImageToToken(block.cross_attn_image_to_token, block.norm4, place, dtype)

    def shared(self, given: Tensor, side: ImageSide) -> tuple[Tensor, Tensor]:
        """The first layer: tokens [I, P, T, C] and positions [I * P, N, C]."""
        tokens = self._self_attention(given, given, given)
        tokens = self._block.norm1(tokens)
        tokens = tokens + self.to_image.shared(tokens + given, side)
        tokens = self._after(tokens)
        return tokens, self.to_tokens.shared(tokens + given, tokens, side)

    def own(self, tokens: Tensor, given: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """A later layer; ``positions`` is overwritten."""
        placed = tokens + given
        tokens = self._block.norm1(tokens + self._self_attention(placed, placed, tokens))
        tokens = tokens + self.to_image.own(tokens + given, positions)
        tokens = self._after(tokens)
        return tokens, self.to_tokens.own(tokens + given, tokens, positions)

    def _self_attention(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        flat = self._block.self_attn(*(x.flatten(0, 1) for x in (queries, keys, values)))
        return flat.view(queries.shape)

    def _after(self, tokens: Tensor) -> Tensor:
        tokens = self._block.norm2(tokens)
        return self._block.norm3(tokens + self._block.mlp(tokens))


class _Upscaling:
    """The decoder's two transposed convolutions as matrix products, and the masks out of them.

    Kernel and stride are both two, so no output pixel has more than one source.
    """

    def __init__(self, layers: Any, dtype: torch.dtype) -> None:
        first, norm, _, second, _ = layers
        self._first = _as_matrix(first, dtype)
        self._norm = (norm.weight.to(dtype), norm.bias.to(dtype), norm.eps)
        self._second = _as_matrix(second, dtype)
        self._dtype = dtype

    def __call__(self, positions: Tensor, mixing: Tensor, grid: tuple[int, int]) -> Tensor:
        """[K, N, C] and [K, M, C / 8] -> mask logits float32 [K, M, 4h, 4w]."""
        weight, bias, eps = self._norm
        x = self._first(positions).unflatten(-1, (4, -1))
        x = functional.gelu(functional.layer_norm(x, weight.shape, weight, bias, eps))
        x = functional.gelu(self._second(x))  # [K, N, 4, 4 * C / 8]
        x = x.unflatten(-1, (4, -1)).flatten(1, 3)  # [K, N * 16, C / 8]
        logits = (mixing.to(self._dtype) @ x.transpose(1, 2)).float()
        # from [h, w, (dy, dx), (ey, ex)] to [h, dy, ey, w, dx, ex]
        fine = logits.view(*logits.shape[:2], *grid, 2, 2, 2, 2).permute(0, 1, 2, 4, 6, 3, 5, 7)
        return fine.reshape(*logits.shape[:2], 4 * grid[0], 4 * grid[1])


def _as_matrix(layer: Any, dtype: torch.dtype) -> nn.Module:
    """The linear map of a pixel to its four successors, those outermost."""
    weight = layer.weight.permute(2, 3, 1, 0).flatten(0, 2).to(dtype)  # [2 * 2 * out, in]
    return linear(weight, layer.bias.repeat(4).to(dtype))


def _scores(asking: Tensor, weight: Tensor, place: Tensor, positions: Tensor) -> Tensor:
    """[I * P, H * T, N]: asking . (weight (position + its place)), per head.

    Args:
        asking: [I, P, H, T, D].
        weight: [H, D, C].
        place: [H, D, N], weight times the places, already made.
        positions: [I * P, N, C].
    """
    moved = torch.einsum("iphtd,hdc->iphtc", asking, weight).flatten(2, 3).flatten(0, 1)
    flat = asking.permute(2, 0, 1, 3, 4).flatten(1, 3).to(positions.dtype)  # [H, I * P * T, D]
    placed = (flat @ place).unflatten(1, (len(positions), -1)).transpose(0, 1).flatten(1, 2)
    return torch.baddbmm(placed, moved.to(positions.dtype), positions.transpose(1, 2))


def _per_head(weight: Tensor, heads: int) -> Tensor:
    """[H * D, C] -> [H, D, C]"""
    return weight.unflatten(0, (heads, -1))


def _split(x: Tensor, heads: int) -> Tensor:
    """[..., S, H * D] -> [..., H, S, D]"""
    return x.unflatten(-1, (heads, -1)).transpose(-2, -3)
