"""SAM's mask decoder for many point prompts: transformers' function in fewer operations.

The two-way transformer projects the whole image embedding to q, k or v eight times for
every point. The embedding has N = 4,096 positions and a point has T = 7 tokens, so the projection
matrices are applied to the tokens here: ``q . (W x) = (W^T q) . x`` and
``sum(a (W x)) = W sum(a x)``. In the first layer the image embedding is the same for all points of
an image and is projected once. Only points with a selected mask are upscaled. Results differ from
the published order of operations by rounding only (Segment Anything, Kirillov et al. 2023,
section A and figure 14).

Shape suffixes:
    I  images
    P  point prompts of each image
    B  I * P
    T  tokens of a point: the IoU token, four mask tokens, the point and the padding point
    N  positions of the image embedding, h * w
    C  width of the image embedding and of a token
    H  attention heads
    D  width of a head; H * D is half of C
    M  masks of a point: 3 (``multimask_output``)
    K  selected masks of all points
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from glit.models.backends.sam.upscaling import Upscaling

if TYPE_CHECKING:
    from transformers import SamModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectedImages:
    """Image embeddings and their projections in the first layer: the same for all points."""

    image_INC: Tensor
    """Image embeddings plus the dense prompt embedding (``no_mask_embed``)."""
    k_IHDN: Tensor
    """Keys of the token-to-image attention."""
    v_IHND: Tensor
    """Values of the token-to-image attention."""
    q_IHDN: Tensor
    """Queries of the image-to-token attention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """Output of the two-way transformer and of the IoU head."""

    tokens_IPTC: Tensor
    image_BNC: Tensor
    predicted_iou_IPM: Tensor
    """float32."""


class PointDecoder:
    """Mask logits and predicted IoUs of single foreground points, three masks a point.

    Args:
        model: in evaluation mode, on its device.
        dtype: of the image embedding in the transformer and the upscaling; tokens, predicted IoUs
            and mask logits are float32.
    """

    def __init__(self, model: SamModel, dtype: torch.dtype) -> None:
        self._prompt_encoder: Any = model.prompt_encoder
        self._mask_decoder: Any = model.mask_decoder
        self._dtype = dtype
        transformer = self._mask_decoder.transformer
        image_pe_NC = model.get_image_wide_positional_embeddings()[0].flatten(1).T
        first, second = (_TwoWayBlock(block, image_pe_NC, dtype) for block in transformer.layers)
        self._image_pe_NC, self._first, self._second = image_pe_NC, first, second
        self._final_attention = _TokenToImageAttention(
            transformer.final_attn_token_to_image, image_pe_NC, dtype
        )
        self._final_norm = transformer.layer_norm_final_attn
        self._upscaling = Upscaling(self._mask_decoder, dtype)
        self._output_tokens_TC = torch.cat(
            [self._mask_decoder.iou_token.weight, self._mask_decoder.mask_tokens.weight]
        )

    def project_images(self, embedding_IChw: Tensor) -> ProjectedImages:
        """The part of the first layer that does not depend on the points."""
        no_mask = self._prompt_encoder.no_mask_embed.weight.view(1, -1, 1, 1)
        image_INC = (embedding_IChw.float() + no_mask).flatten(2).transpose(1, 2)
        image_with_pe_INC = image_INC + self._image_pe_NC
        k_IHDN, v_IHND = self._first.token_to_image.project_image(image_INC, image_with_pe_INC)
        return ProjectedImages(
            image_INC=image_INC.to(self._dtype).contiguous(),
            k_IHDN=k_IHDN,
            v_IHND=v_IHND,
            q_IHDN=self._first.image_to_token.project_image(image_with_pe_INC),
        )

    def decode(self, images: ProjectedImages, points_IP2: Tensor) -> Decoded:
        """Run the transformer and the IoU head.

        Args:
            images: of I images.
            points_IP2: x and y in pixels of the encoder's input.
        """
        token_pe_IPTC = self._prompt_tokens(points_IP2)
        tokens_IPTC, image_BNC = self._first.first_layer(token_pe_IPTC, images)
        tokens_IPTC, image_BNC = self._second.later_layer(tokens_IPTC, token_pe_IPTC, image_BNC)
        attention_IPTC = self._final_attention(tokens_IPTC + token_pe_IPTC, image_BNC)
        tokens_IPTC = self._final_norm(tokens_IPTC + attention_IPTC)
        return Decoded(
            tokens_IPTC=tokens_IPTC,
            image_BNC=image_BNC,
            predicted_iou_IPM=self._mask_decoder.iou_prediction_head(tokens_IPTC[:, :, 0])[..., 1:],
        )

    def mask_logits(self, decoded: Decoded, selected_IPM: Tensor) -> Tensor:
        """Mask logits [K, 4h, 4w] of the selected masks, ordered by point, then by mask.

        Args:
            decoded: of a batch of points.
            selected_IPM: bool, K of them true; on the CPU, or a GPU is waited for.
        """
        selected_BM = selected_IPM.flatten(0, 1).cpu()
        has_mask_B = selected_BM.any(dim=1)
        device = decoded.image_BNC.device
        points = numbers_of(has_mask_B, device)
        tokens = decoded.tokens_IPTC.flatten(0, 1)[points]
        # token 0 is the IoU token, token 1 the mask token of the single-mask output
        hyper_in = torch.stack(
            [
                self._mask_decoder.output_hypernetworks_mlps[index](tokens[:, 1 + index])
                for index in range(1, 4)
            ],
            dim=1,
        )
        image = decoded.image_BNC
        if len(points) < len(image):  # else nothing need be copied
            image = image[points]
        logits = self._upscaling(image, hyper_in, self._prompt_encoder.image_embedding_size)
        return logits.flatten(0, 1)[numbers_of(selected_BM[has_mask_B], device)]

    def _prompt_tokens(self, points_IP2: Tensor) -> Tensor:
        """[I, P, T, C]: output tokens, then the sparse prompt embeddings of the point.

        They are the first layer's input and the tokens' positional encoding in every layer. As in
        ``SamPromptEncoder``, whose boolean indices would wait for a GPU: a foreground point at the
        middle of its pixel, and the padding point that stands for a missing box.
        """
        num_images, num_points = points_IP2.shape[:2]
        prompt = self._prompt_encoder
        side = prompt.input_image_size
        encoded = prompt.shared_embedding(points_IP2.unsqueeze(2) + 0.5, (side, side))
        foreground = encoded + prompt.point_embed[1].weight
        padding = prompt.not_a_point_embed.weight.expand_as(foreground)
        sparse = torch.cat([foreground, padding], dim=2)
        output_tokens = self._output_tokens_TC.expand(num_images, num_points, -1, -1)
        return torch.cat([output_tokens, sparse], dim=2)


def numbers_of(selected: Tensor, device: torch.device) -> Tensor:
    """Positions of what is true in a flattened tensor of the CPU, on a device; nobody waits."""
    return selected.flatten().nonzero()[:, 0].to(device, non_blocking=True)


class _TokenToImageAttention:
    """Cross-attention with q from the tokens, k and v from the image embedding."""

    def __init__(self, attention: Any, image_pe_NC: Tensor, dtype: torch.dtype) -> None:
        self._attention = attention
        self._dtype = dtype
        self._num_heads = attention.num_attention_heads
        self._scale = attention.scaling
        self._k_weight_HDC = _weight_per_head(attention.k_proj.weight, self._num_heads)
        self._v_weight_HDC = _weight_per_head(attention.v_proj.weight, self._num_heads)
        # k_proj.bias adds the same to the scores of all positions; the softmax cancels it
        k_pe_HDN = torch.einsum("hdc,nc->hdn", self._k_weight_HDC, image_pe_NC.float())
        self._k_pe_HDN = k_pe_HDN.to(dtype)

    def project_image(self, image_INC: Tensor, image_with_pe_INC: Tensor) -> tuple[Tensor, Tensor]:
        """k [I, H, D, N] and v [I, H, N, D] of image embeddings that all points share."""
        k_IHND = _separate_heads(self._attention.k_proj(image_with_pe_INC), self._num_heads)
        v_IHND = _separate_heads(self._attention.v_proj(image_INC), self._num_heads)
        k_IHDN = k_IHND.transpose(-1, -2)
        return k_IHDN.to(self._dtype).contiguous(), v_IHND.to(self._dtype).contiguous()

    def first_layer(self, tokens_with_pe_IPTC: Tensor, images: ProjectedImages) -> Tensor:
        """[I, P, T, C], over image embeddings that all points share."""
        num_points, num_tokens = tokens_with_pe_IPTC.shape[1:3]
        q_IPHTD = self._project_q(tokens_with_pe_IPTC)
        q = q_IPHTD.permute(0, 2, 1, 3, 4).flatten(2, 3)  # [I, H, P * T, D]
        weights = (q.to(self._dtype) @ images.k_IHDN).softmax(dim=-1)  # [I, H, P * T, N]
        out_IHPTD = (weights @ images.v_IHND).float().unflatten(2, (num_points, num_tokens))
        return self._attention.out_proj(out_IHPTD.permute(0, 2, 3, 1, 4).flatten(3))

    def __call__(self, tokens_with_pe_IPTC: Tensor, image_BNC: Tensor) -> Tensor:
        """[I, P, T, C], over the image embedding of each point."""
        q_IPHTD = self._project_q(tokens_with_pe_IPTC)
        scores = _scores(q_IPHTD, self._k_weight_HDC, self._k_pe_HDN, image_BNC)
        mean_image = (scores.softmax(dim=-1) @ image_BNC).float()  # [B, H * T, C]
        mean_image_IPHTC = mean_image.view(*q_IPHTD.shape[:4], -1)
        out = torch.einsum("iphtc,hdc->ipthd", mean_image_IPHTC, self._v_weight_HDC).flatten(3)
        return self._attention.out_proj(out + self._attention.v_proj.bias)

    def _project_q(self, tokens_with_pe_IPTC: Tensor) -> Tensor:
        """[I, P, H, T, D], divided by the square root of D."""
        q = self._attention.q_proj(tokens_with_pe_IPTC) * self._scale
        return _separate_heads(q, self._num_heads)


class _ImageToTokenAttention:
    """Cross-attention with q from the image embedding, k and v from the tokens; then norm4."""

    def __init__(
        self, attention: Any, norm: nn.LayerNorm, image_pe_NC: Tensor, dtype: torch.dtype
    ) -> None:
        self._attention = attention
        self._dtype = dtype
        self._num_heads = attention.num_attention_heads
        self._scale = attention.scaling
        self._q_weight_HDC = _weight_per_head(attention.q_proj.weight, self._num_heads)
        q_bias_HD1 = attention.q_proj.bias.view(self._num_heads, -1, 1)
        q_pe_HDN = torch.einsum("hdc,nc->hdn", self._q_weight_HDC, image_pe_NC.float())
        self._q_pe_HDN = (q_pe_HDN + q_bias_HD1).to(dtype)
        self._out_weight_HDC = _weight_per_head(attention.out_proj.weight.T, self._num_heads)
        self._norm = (norm.weight.to(dtype), norm.bias.to(dtype), norm.eps)

    def project_image(self, image_with_pe_INC: Tensor) -> Tensor:
        """q [I, H, D, N] of image embeddings that all points share."""
        q_IHND = _separate_heads(self._attention.q_proj(image_with_pe_INC), self._num_heads)
        return q_IHND.transpose(-1, -2).to(self._dtype).contiguous()

    def first_layer(
        self, tokens_with_pe_IPTC: Tensor, tokens_IPTC: Tensor, images: ProjectedImages
    ) -> Tensor:
        """[B, N, C] out of image embeddings that all points share."""
        k_IPHTD = self._project_k(tokens_with_pe_IPTC)
        num_points, num_tokens = k_IPHTD.shape[1], k_IPHTD.shape[3]
        k = k_IPHTD.permute(0, 2, 1, 3, 4).flatten(2, 3).to(self._dtype)  # [I, H, P * T, D]
        scores = (k @ images.q_IHDN).unflatten(2, (num_points, num_tokens)).transpose(1, 2)
        weights = scores.softmax(dim=3).flatten(2, 3).flatten(0, 1)  # [B, H * T, N]
        image_IPNC = images.image_INC.unsqueeze(1).expand(-1, num_points, -1, -1)
        image_BNC = torch.baddbmm(
            image_IPNC.flatten(0, 1), weights.transpose(1, 2), self._project_v(tokens_IPTC)
        )
        return self._layer_norm(image_BNC)

    def __call__(
        self, tokens_with_pe_IPTC: Tensor, tokens_IPTC: Tensor, image_BNC: Tensor
    ) -> Tensor:
        """[B, N, C] out of the image embedding of each point, which is overwritten."""
        k_IPHTD = self._project_k(tokens_with_pe_IPTC)
        scores = _scores(k_IPHTD, self._q_weight_HDC, self._q_pe_HDN, image_BNC)
        weights = scores.unflatten(1, k_IPHTD.shape[2:4]).softmax(dim=2).flatten(1, 2)
        image_BNC.baddbmm_(weights.transpose(1, 2), self._project_v(tokens_IPTC))
        return self._layer_norm(image_BNC)

    def _project_k(self, tokens_with_pe_IPTC: Tensor) -> Tensor:
        """[I, P, H, T, D], divided by the square root of D."""
        k = self._attention.k_proj(tokens_with_pe_IPTC) * self._scale
        return _separate_heads(k, self._num_heads)

    def _project_v(self, tokens_IPTC: Tensor) -> Tensor:
        """[B, H * T, C]: v of each token, through each head's part of the output projection."""
        v_IPHTD = _separate_heads(self._attention.v_proj(tokens_IPTC), self._num_heads)
        v_IPHTC = torch.einsum("iphtd,hdc->iphtc", v_IPHTD, self._out_weight_HDC)
        # a head's attention weights sum to one, so out_proj.bias added to one head is added once
        v_IPHTC[:, :, 0] += self._attention.out_proj.bias
        return v_IPHTC.flatten(2, 3).flatten(0, 1).to(self._dtype)

    def _layer_norm(self, image_BNC: Tensor) -> Tensor:
        weight, bias, eps = self._norm
        return functional.layer_norm(image_BNC, weight.shape, weight, bias, eps)


class _TwoWayBlock:
    """A ``SamTwoWayAttentionBlock``: self-attention, token to image, MLP, image to token."""

    def __init__(self, block: Any, image_pe_NC: Tensor, dtype: torch.dtype) -> None:
        self._block = block
        self.token_to_image = _TokenToImageAttention(
            block.cross_attn_token_to_image, image_pe_NC, dtype
        )
        self.image_to_token = _ImageToTokenAttention(
            block.cross_attn_image_to_token, block.layer_norm4, image_pe_NC, dtype
        )

    def first_layer(self, token_pe_IPTC: Tensor, images: ProjectedImages) -> tuple[Tensor, Tensor]:
        """Tokens [I, P, T, C] and image embedding [B, N, C]; its input tokens are ``token_pe``."""
        tokens = self._self_attention(token_pe_IPTC, token_pe_IPTC, token_pe_IPTC)
        tokens = self._block.layer_norm1(tokens)
        tokens = tokens + self.token_to_image.first_layer(tokens + token_pe_IPTC, images)
        tokens = self._mlp(tokens)
        return tokens, self.image_to_token.first_layer(tokens + token_pe_IPTC, tokens, images)

    def later_layer(
        self, tokens_IPTC: Tensor, token_pe_IPTC: Tensor, image_BNC: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Tokens [I, P, T, C] and image embedding [B, N, C]; ``image_BNC`` is overwritten."""
        tokens_with_pe = tokens_IPTC + token_pe_IPTC
        attention = self._self_attention(tokens_with_pe, tokens_with_pe, tokens_IPTC)
        tokens = self._block.layer_norm1(tokens_IPTC + attention)
        tokens = tokens + self.token_to_image(tokens + token_pe_IPTC, image_BNC)
        tokens = self._mlp(tokens)
        return tokens, self.image_to_token(tokens + token_pe_IPTC, tokens, image_BNC)

    def _self_attention(self, q_IPTC: Tensor, k_IPTC: Tensor, v_IPTC: Tensor) -> Tensor:
        return self._block.self_attn(q_IPTC, k_IPTC, v_IPTC)[0]

    def _mlp(self, tokens_IPTC: Tensor) -> Tensor:
        tokens_IPTC = self._block.layer_norm2(tokens_IPTC)
        return self._block.layer_norm3(tokens_IPTC + self._block.mlp(tokens_IPTC))


def plain_decoder(
    model: SamModel, embedding_1Chw: Tensor, points_P2: Tensor
) -> tuple[Tensor, Tensor]:
    """Mask logits [P, M, 4h, 4w] and predicted IoUs [P, M] by transformers' own modules."""
    labels_1P1 = torch.ones(1, len(points_P2), 1, dtype=torch.int, device=points_P2.device)
    sparse, dense = model.prompt_encoder(points_P2[None, :, None], labels_1P1, None, None)
    logits_1PMhw, predicted_iou_1PM = model.mask_decoder(
        image_embeddings=embedding_1Chw,
        image_positional_embeddings=model.get_image_wide_positional_embeddings(),
        sparse_prompt_embeddings=sparse,
        dense_prompt_embeddings=dense,
        multimask_output=True,
    )
    return logits_1PMhw[0], predicted_iou_1PM[0]


def _scores(x_IPHTD: Tensor, weight_HDC: Tensor, pe_HDN: Tensor, image_BNC: Tensor) -> Tensor:
    """Attention scores [B, H * T, N]: ``x . (weight (image + image_pe))`` for each head.

    Args:
        x_IPHTD: q or k of the tokens, scaled.
        weight_HDC: of the projection of the image embedding to k or q.
        pe_HDN: the positional encoding, projected.
        image_BNC: the image embedding, not projected.
    """
    x_in_image_space = torch.einsum("iphtd,hdc->iphtc", x_IPHTD, weight_HDC)
    x_in_image_space = x_in_image_space.flatten(2, 3).flatten(0, 1)  # [B, H * T, C]
    x = x_IPHTD.permute(2, 0, 1, 3, 4).flatten(1, 3).to(image_BNC.dtype)  # [H, B * T, D]
    pe_scores = (x @ pe_HDN).unflatten(1, (len(image_BNC), -1)).transpose(0, 1).flatten(1, 2)
    return torch.baddbmm(pe_scores, x_in_image_space.to(image_BNC.dtype), image_BNC.transpose(1, 2))


def _weight_per_head(weight: Tensor, num_heads: int) -> Tensor:
    """[H * D, C] -> [H, D, C]"""
    return weight.unflatten(0, (num_heads, -1))


def _separate_heads(x: Tensor, num_heads: int) -> Tensor:
    """[..., S, H * D] -> [..., H, S, D]"""
    return x.unflatten(-1, (num_heads, -1)).transpose(-2, -3)
