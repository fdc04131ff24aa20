"""The module of an objective: parameters of its own, between the encoders and the loss.

Shapes: B samples, K local slots, S further texts, P patches, L caption tokens, H tower width,
D width of an embedding.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor, nn

from glit.models.clip.encoder import ClipEncoder
from glit.models.clip.text_rows import TextRows
from glit.text.spans import Span
from glit.training.batch import Batch
from glit.training.features import Features


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Token features of the whole images and captions, as wide as each tower (H)."""

    patch_BPH: Float[Tensor, "b p h"]
    """Patch tokens, before the vision tower's post-layernorm."""
    token_BLH: Float[Tensor, "b l t"]
    """Caption tokens, before the text tower's final layer norm; where ``valid_token_BL`` is
    false they belong to other texts."""
    valid_token_BL: Bool[Tensor, "b l"]
    """The caption's own tokens, start and end token included."""
    further_BSD: Float[Tensor, "b s d"]
    """The further texts in the shared space, not normalised; zeros in empty slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """The input of an objective's module: the samples of this process, not gathered."""

    features: Features
    """Embeddings, pooled ones included where they are needed."""
    encoder: ClipEncoder
    """Projects tokens into the shared space."""
    batch: Batch
    """The batch that was encoded."""
    tokens: Tokens | None = None
    """The tokens, where ``needs.tokens`` or ``needs.pooled_tokens`` asks for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleOutput:
    """The results of a module, under names that it chooses."""

    rows: Mapping[str, Tensor] = field(default_factory=dict)
    """[B, ...] a row a sample; gathered over processes with gradients, as ``features.made``."""
    valid: Mapping[str, Tensor] = field(default_factory=dict)
    """Bool [B, ...]; gathered as ``features.valid_made``."""
    numbers: Mapping[str, Tensor] = field(default_factory=dict)
    """Learned values for the loss that belong to no sample; the same in every process."""


class ObjectiveModule(nn.Module):
    """The own parameters of an objective."""

    @abstractmethod
    def forward(self, encoded: Encoded) -> ModuleOutput:
        """Turn a part of a batch into what the loss needs; sample by sample, so that parts and
        processes do not matter."""

    def after_step(self, max_logit_scale: float) -> None:
        """Called after every optimiser step, without gradients, to keep parameters in range."""


class LearnedScales(ObjectiveModule):
    """Learned factors on cosines, as logarithms, and biases; one of each for every term.

    The loss gets them as the numbers ``scale`` and ``bias``, those of named terms as ``NAME_scale``
    and ``NAME_bias``.
    """

    def __init__(
        self, *terms: str, scale: float, bias: float | None = None, is_limited: bool = False
    ) -> None:
        """Begin all terms alike.

        Args:
            terms: names; without any there is one term without a name.
            scale: the factor at first.
            bias: the bias at first; None for losses without one.
            is_limited: whether factors stay at or below CLIP's own limit.
        """
        super().__init__()
        self.prefixes, self.is_limited = [f"{term}_" for term in terms] or [""], is_limited
        shape = (len(terms),) if len(terms) > 1 else ()
        self.log_scale = nn.Parameter(torch.full(shape, math.log(scale)))
        self.bias = None if bias is None else nn.Parameter(torch.full(shape, bias))

    def numbers(self) -> dict[str, Tensor]:
        """Scale and bias of every term."""
        learned = {"scale": self.log_scale.exp()}
        if self.bias is not None:
            learned["bias"] = self.bias
        return {
            f"{prefix}{name}": value
            for name, values in learned.items()
            for prefix, value in zip(self.prefixes, values.reshape(-1), strict=True)
        }

    def forward(self, encoded: Encoded) -> ModuleOutput:
        return ModuleOutput(numbers=self.numbers())

    def after_step(self, max_logit_scale: float) -> None:
        if self.is_limited:
            self.log_scale.clamp_(max=math.log(max_logit_scale))


class EncodingModule(ObjectiveModule):
    """The module of an objective that has ``own_encoders``.

    Its ``forward`` encodes a batch in training; its other methods embed whole images and texts when
    the model is measured. Embeddings need not be normalised.
    """

    @abstractmethod
    def embed_images(
        self, squares_B3SS: UInt8[Tensor, "b 3 s s"], prepared: Mapping[str, Tensor]
    ) -> Float[Tensor, "b d"]:
        """Embed images.

        Args:
            squares_B3SS: images in the model's square.
            prepared: what :meth:`Objective.prepare` made of each, a row an image.
        """

    def parts_of(self, text: str, sentences: Sequence[Span]) -> Sequence[str]:
        """Return the pieces of a text that are encoded apart; at least one."""
        return [text]

    @abstractmethod
    def embed_texts(self, parts: TextRows, number_T: Sequence[int]) -> Float[Tensor, "t d"]:
        """Embed texts.

        Args:
            parts: the pieces of all texts, one after the other.
            number_T: pieces of every text.
        """
