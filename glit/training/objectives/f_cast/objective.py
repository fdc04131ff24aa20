"""``f-cast``: caption chunks against image segments, and caption against image.

v_i,jk = AttnPool(t_jk, v_i^fine, v_i^fine)                                              (Eq. 6)
L_part = -1/M sum_i sum_jk log sigmoid(y_ij (s_part cos(v_i,jk, t_jk) + b_part))         (Eq. 7)
L_whole = -1/N sum_ij log sigmoid(y_ij (s_whole cos(v_i^coarse, t_j^long) + b_whole))    (Eq. 8)
L = L_part + L_whole,  y_ij = 1 if i = j, else -1

(F-CAST, under review for ICLR 2026.) CLIP's towers are not used, and stay in the checkpoint as they
were. What the paper leaves open or prints otherwise:

- Eq. 7 and 8 lack the -log, and their b has the wrong sign; here as SigLIP has it. The printed
  start of the temperature, 0.07, is that of 1/s: s begins at 1/0.07, learned as a log, b at -10,
  apart for parts and wholes.
- AttnPool is FLAIR's: 8 heads, layer norms of query, key and value, a key of zeros besides. As
  there, an image meets its own K chunks and one of every other image, and the sum is divided by
  the number M = N + K - 1 of texts that an image meets. Which one of another is decided by its
  caption's hash, since a loss draws nothing; the chunks are drawn again every time.
- K = 8 (Eq. 4 and 5): four chunks of the caption, and four of the same caption drawn again, where
  the paper's data have several captions an image; the dataset's short caption is one of these
  where it has one.

Gathered over processes, every one computes all N x (N + K) pooled vectors: 4 GB at N = 1,024.
Adam's beta of 0.98 (Table 3) cannot be set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, UInt8
from torch import Tensor, nn

from glit.models.clip.encoder import ClipEncoder
from glit.models.clip.text_rows import TextRows
from glit.plain import limited
from glit.recipes.config import require_value
from glit.recipes.extras import require
from glit.text.spans import Span
from glit.training.batch import into_slots
from glit.training.features import Features
from glit.training.losses import sigmoid_loss
from glit.training.module import Encoded, EncodingModule, LearnedScales, ModuleOutput
from glit.training.objective import InputSpec, Loss, Objective, logged
from glit.training.objectives.f_cast.chunks import balanced_chunks, random_chunks
from glit.training.objectives.f_cast.model import FCastEncoder, Start
from glit.training.objectives.f_cast.superpixels import MOST_SEGMENTS, STRIDE, superpixels
from glit.training.objectives.f_cast.vision import NUM_STAGES

_HEADS = 8
_SUPERPIXELS = "superpixels"


class FCastModule(LearnedScales, EncodingModule):
    """The encoders, the attention's parameters, and two scales and biases.

    Queries, keys and values are projected here; the attention itself is in the loss, where the
    texts of all processes are.
    """

    def __init__(self, encoders: FCastEncoder, width: int, num_chunks: int) -> None:
        super().__init__("part", "whole", scale=1 / 0.07, bias=-10.0, is_limited=True)
        self.encoders = encoders
        self.num_chunks = num_chunks
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.projections = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, encoded: Encoded) -> ModuleOutput:
        batch = encoded.batch
        fine_BFD, coarse_BD = self.encoders.images(batch.pixels_V3SS, batch.prepared[_SUPERPIXELS])
        chunk_TW = self.encoders.text.chunks(batch.texts)[batch.num_global :]
        chunk_BSW = into_slots(chunk_TW, batch.slot_E, batch.valid_further_NS)
        first_BN = batch.valid_further_NS[:, : self.num_chunks]
        long_BD = self.encoders.text.whole(chunk_BSW[:, : self.num_chunks], first_BN)
        part_BSD = self.encoders.text.parts(chunk_BSW)
        given = (part_BSD, fine_BFD, fine_BFD)
        query, key, value = (
            project(norm(each)).float()
            for project, norm, each in zip(self.projections, self.norms, given, strict=True)
        )
        return ModuleOutput(
            rows={
                "query": query,
                "key": key,
                "value": value,
                "parts": F.normalize(part_BSD.float(), dim=-1),
                "coarse": F.normalize(coarse_BD.float(), dim=-1),
                "long": F.normalize(long_BD.float(), dim=-1),
            },
            numbers={"out_weight": self.out.weight, "out_bias": self.out.bias, **self.numbers()},
        )

    def embed_images(
        self, squares_B3SS: UInt8[Tensor, "b 3 s s"], prepared: Mapping[str, Tensor]
    ) -> Float[Tensor, "b d"]:
        """Whole features (section 3.3: parts are for training only)."""
        return self.encoders.images(squares_B3SS, prepared[_SUPERPIXELS])[1]

    def parts_of(self, text: str, sentences: Sequence[Span]) -> Sequence[str]:
        """The sentences in chunks as fairly as possible; a text without any is one chunk."""
        spans = balanced_chunks(sentences, self.num_chunks)
        return [text[start:end] for start, end in spans] or [text]

    def embed_texts(self, parts: TextRows, number_T: Sequence[int]) -> Float[Tensor, "t d"]:
        """Whole features of chunks in order (Eq. 3)."""
        chunks = self.encoders.text.chunks(parts)
        numbers = torch.tensor(number_T, device=chunks.device)
        valid_TN = torch.arange(self.num_chunks, device=chunks.device) < numbers[:, None]
        slots = chunks.new_zeros(*valid_TN.shape, chunks.shape[-1])
        slots[valid_TN] = chunks
        return self.encoders.text.whole(slots, valid_TN)


@dataclass(frozen=True, slots=True, kw_only=True)
class FCast(Objective):
    """Part and whole sigmoid losses over encoders of F-CAST's own."""

    own_encoders: ClassVar[bool] = True

    encoders_start: Start = "scratch"
    """``scratch`` as in the paper, or ``clip``: the weights of ``train.model`` that fit. Both take
    its widths and heads, its window and its tokenizer."""
    depths: tuple[int, ...] = limited((3, 3, 3, 2), least=1)
    """Number of vision layers before each grouping and after the last."""
    text_depths: tuple[int, ...] = limited((8, 4), least=1)
    """Number of text layers within a chunk and over the chunks."""
    num_segments: tuple[int, ...] = limited((196, 64, 32, 16), least=1, most=MOST_SEGMENTS)
    """Number of superpixels, and of segments after each grouping."""
    num_chunks: int = limited(4, least=1)
    """N, chunks of a caption."""
    num_parts: int = 8
    """K, chunks that an image is compared with; chunks beyond N are drawn again."""
    lambda_part: float = limited(1.0, least=0)
    """Weight of the part loss; 0 is Table 5's variant."""

    def check(self) -> None:
        for name, length in (("depths", NUM_STAGES), ("text_depths", 2), ("num_segments", 4)):
            values = getattr(self, name)
            good = len(values) == length
            require_value(good, f"train.{name} = {list(values)}: wanted {length} numbers")
        falling = sorted(self.num_segments, reverse=True) == list(self.num_segments)
        found = f"train.num_segments = {list(self.num_segments)}"
        require_value(falling, f"{found}: wanted no more after a grouping than before")
        fits = self.num_chunks <= self.num_parts
        found = f"train.num_chunks = {self.num_chunks}, num_parts = {self.num_parts}"
        require_value(fits, f"{found}: wanted as many parts as chunks or more")

    takes_short: ClassVar[bool] = True

    @property
    def needs(self) -> InputSpec:
        return InputSpec(captions=False, num_texts=self.num_parts)

    def inputs(self, side: int) -> Mapping[str, Tensor]:
        """The superpixel of every cell of the image."""
        return {_SUPERPIXELS: torch.zeros((side // STRIDE, side // STRIDE), dtype=torch.uint8)}

    def prepare(
        self, image: UInt8[Tensor, "3 side side"], caption: str, inputs: Mapping[str, Tensor]
    ) -> None:
        found = superpixels(image.permute(1, 2, 0).numpy(), self.num_segments[0])
        np.copyto(inputs[_SUPERPIXELS].numpy(), found)

    def texts(
        self,
        caption: str,
        sentences: Sequence[Span],
        draw: np.random.Generator,
        short: str | None = None,
    ) -> Sequence[str]:
        """Chunks of the caption in order, then the short caption, then others."""
        found = random_chunks(sentences, self.num_chunks, draw)
        besides = [short] if short and found and self.num_chunks < self.num_parts else []
        num_spans = self.num_parts - len(besides)
        while found and len(found) < num_spans:
            more = random_chunks(sentences, self.num_chunks, draw)
            found += [more[i] for i in draw.permutation(len(more))][: num_spans - len(found)]
        texts = [caption[start:end] for start, end in found]
        return [*texts[: self.num_chunks], *besides, *texts[self.num_chunks :]]

    def module(self, encoder: ClipEncoder) -> FCastModule:
        require("superpixels", needed_for="train.objective = 'f-cast'")
        first, second = self.text_depths
        encoders = FCastEncoder(
            encoder,
            depths=self.depths,
            text_depths=(first, second),
            num_segments=self.num_segments,
            num_chunks=self.num_chunks,
            start=self.encoders_start,
        )
        return FCastModule(encoders, encoder.width, self.num_chunks)

    def __call__(self, features: Features, logit_scale: Float[Tensor, ""]) -> Loss:
        """The weighted sum, its terms, and the learned scales."""
        made, numbers = features.made, features.numbers
        valid_NK = features.valid_further_NS & features.valid_N[:, None]
        scale, bias = numbers["whole_scale"], numbers["whole_bias"]
        whole = sigmoid_loss(made["coarse"], made["long"], scale, bias, valid_NK[:, 0])
        pick_N = features.caption_key_N2[:, 0].long() % valid_NK.sum(dim=1).clamp_min(1)
        part = part_loss(
            made["query"],
            made["key"],
            made["value"],
            made["parts"],
            valid_NK,
            pick_N,
            (numbers["out_weight"], numbers["out_bias"]),
            numbers["part_scale"],
            numbers["part_bias"],
        )
        return logged(
            whole + self.lambda_part * part,
            loss_whole=whole,
            loss_part=part,
            part_scale=numbers["part_scale"],
            whole_scale=numbers["whole_scale"],
        )


def part_loss(
    query_NKD: Float[Tensor, "n k d"],
    key_NFD: Float[Tensor, "n f d"],
    value_NFD: Float[Tensor, "n f d"],
    part_NKD: Float[Tensor, "n k d"],
    valid_NK: Bool[Tensor, "n k"],
    pick_N: Tensor,
    out: tuple[Tensor, Tensor],
    scale: Float[Tensor, ""],
    bias: Float[Tensor, ""],
) -> Float[Tensor, ""]:
    """L_part (Eq. 7) of images' keys and values with their own texts, and one of every other's.

    Args:
        query_NKD: of the texts, projected.
        key_NFD: of the segments, projected; a key of zeros is added.
        value_NFD: the same.
        part_NKD: the texts, L2-normalised.
        valid_NK: which texts there are.
        pick_N: which text of a sample the others' images meet.
        out: weight and bias of the attention's output.
        scale: of cosines.
        bias: added to them.
    """
    num_samples, num_slots, width = query_NKD.shape
    valid_N = valid_NK[:, 0]
    index_N11 = pick_N[:, None, None].expand(-1, 1, width)

    def met(texts_NKD: Tensor) -> Tensor:
        """Every image's own texts, then the picked one of every sample."""
        picked_ND = texts_NKD.gather(1, index_N11)[:, 0]
        others = picked_ND.expand(num_samples, -1, -1)
        return torch.cat([texts_NKD, others], dim=1)

    heads = math.gcd(_HEADS, width)
    query, key, value = (
        each.unflatten(-1, (heads, -1)).transpose(1, 2)
        for each in (met(query_NKD), F.pad(key_NFD, (0, 0, 0, 1)), F.pad(value_NFD, (0, 0, 0, 1)))
    )
    pooled = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
    pooled = F.normalize(F.linear(pooled, *out), dim=-1)
    logits = scale * (pooled * met(part_NKD)).sum(dim=-1) + bias
    own = torch.arange(logits.shape[1], device=logits.device) < num_slots
    error = -F.logsigmoid(torch.where(own, logits, -logits))
    other_NN = valid_N & ~torch.eye(num_samples, dtype=torch.bool, device=logits.device)
    counted = torch.cat([valid_NK, other_NN], dim=1) & valid_N[:, None]
    total = torch.where(counted, error, torch.zeros_like(error)).sum()
    return total / (valid_N.sum() + num_slots - 1).clamp_min(1)
