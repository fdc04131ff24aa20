"""The interface of a training objective: its inputs, its parameters, and its loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from glit.recipes.config import RecipeTable
from glit.text.spans import Span
from glit.training.features import Features
from glit.training.losses import against_negatives, contrastive

if TYPE_CHECKING:
    from glit.models.clip.encoder import ClipEncoder
    from glit.training.module import ObjectiveModule

Loss = tuple[Float[Tensor, ""], dict[str, Tensor]]
"""The loss to minimise, and detached scalars for the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """The inputs that an objective needs of every sample; nothing else is decoded or encoded."""

    whole: bool = True
    """Whole images and whole captions."""
    captions: bool = True
    """Without them an empty text stands in every caption's place."""
    num_local: int = 0
    """Local pairs, best first."""
    crops: bool = True
    """Crops of the pairs' regions."""
    sentences: bool = True
    """Sentences of the pairs, encoded by themselves."""
    distinct_regions: bool = False
    """Only the best sentence of every region."""
    pooled_patches: bool = False
    """Patch tokens of every region, pooled; needs ``whole`` and local pairs."""
    pooled_tokens: bool = False
    """Caption tokens of every sentence, pooled; needs ``pooled_patches``."""
    tokens: bool = False
    """All patch and caption tokens, for a module of the objective; needs ``whole``."""
    unmixed: bool = False
    """Patch tokens that attend to themselves alone in the last layer."""
    num_negatives: int = 0
    """False sentences of every local pair, encoded by themselves; drawn from the dataset's column
    ``negatives``."""
    num_texts: int = 0
    """Texts beside the caption and the sentences, as the objective picks them."""


class Objective(RecipeTable, ABC):
    """A loss over the features of one contrastive batch.

    Subclasses are frozen dataclasses whose fields are keys of the ``[train]`` table. The loss is
    pure: no model, no randomness, no process group; the order of the samples does not matter, and
    filler samples (``valid_N`` false) count for nothing. To weigh them with zero is faster than to
    select the others: a selection waits for the GPU. What has parameters of its own, or looks at
    tokens, goes into a module.
    """

    table: ClassVar[str] = "train"

    own_encoders: ClassVar[bool] = False
    """True if the objective's module, an :class:`EncodingModule`, encodes images and texts itself.
    Then CLIP's towers encode nothing and are not trained."""

    takes_short: ClassVar[bool] = False
    """True if :meth:`texts` takes ``short``, a sample's short caption or None."""
    needs_short: ClassVar[bool] = False
    """True if images without a short caption have no further text; else it is their first sentence.
    """

    @property
    @abstractmethod
    def needs(self) -> InputSpec:
        """The inputs of the objective."""

    @abstractmethod
    def __call__(self, features: Features, logit_scale: Float[Tensor, ""]) -> Loss:
        """Compute the loss and the values to log.

        Args:
            features: of all processes' samples.
            logit_scale: CLIP's learned factor on cosines.
        """

    def texts(
        self,
        caption: str,
        sentences: Sequence[Span],
        draw: np.random.Generator,
        short: str | None = None,
    ) -> Sequence[str]:
        """Further texts of a sample, at most ``needs.num_texts``; asked for where that is above 0.

        These are the short caption or, unless ``needs_short``, the first sentence in its place. An
        objective that takes others, such as all sentences, overrides it.

        Args:
            caption: the sample's.
            sentences: character spans of its sentences.
            draw: random numbers, seeded by the run's seed, the epoch and the sample.
            short: its short caption, if it has one; given where ``takes_short``.
        """
        if short:
            return [short]
        return [] if self.needs_short else [caption[start:end] for start, end in sentences[:1]]

    def inputs(self, side: int) -> Mapping[str, Tensor]:
        """Inputs of the objective's own beside pixels and texts: by name an empty tensor of one
        sample, which :meth:`prepare` fills. A batch holds them stacked, as ``batch.prepared``.

        Args:
            side: of the model's input square, pixels.
        """
        return {}

    def prepare(
        self, image: UInt8[Tensor, "3 side side"], caption: str, inputs: Mapping[str, Tensor]
    ) -> None:
        """Fill a sample's tensors of :meth:`inputs`, in a thread of the loader; needs ``whole``.

        Args:
            image: the whole image in the model's square.
            caption: the sample's; empty where a model of :attr:`own_encoders` is measured.
            inputs: to write into, as zeros.
        """
        raise NotImplementedError(f"{type(self).__name__} has inputs and does not fill them")

    def module(self, encoder: ClipEncoder) -> ObjectiveModule | None:
        """A module with parameters of the objective's own, freshly initialised; it is trained,
        saved and loaded with the model."""
        return None

    @property
    def module_lr(self) -> float:
        """Highest learning rate of the module's parameters; 0 takes ``train.lr``."""
        return 0.0


def logged(loss: Float[Tensor, ""], **values: Tensor) -> Loss:
    """A loss with values for the log."""
    return loss, {name: value.detach() for name, value in values.items()}


def global_loss(features: Features, logit_scale: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """Contrastive loss of whole images and whole captions (FAST-GOAL Eq. 12)."""
    return contrastive(features.image_ND, features.text_ND, logit_scale, features.valid_N)


def local_loss(features: Features, logit_scale: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """Contrastive loss of every sample's best region and sentence (FAST-GOAL Eq. 13), every pair
    of its own weight."""
    return contrastive(
        features.local_image_NKD[:, 0],
        features.local_text_NKD[:, 0],
        logit_scale,
        features.valid_local_NK[:, 0] & features.valid_N,
        features.weight_NK[:, 0],
    )


def false_sentence_loss(
    features: Features,
    image_NKD: Float[Tensor, "n k_or_1 d"],
    valid_NK: Bool[Tensor, "n k_or_1"],
    scale: Float[Tensor, ""],
) -> Float[Tensor, ""]:
    """Cross-entropy of every pair's sentence among its false ones, every pair of its own weight.

    Args:
        features: of all samples.
        image_NKD: what the sentences are about: regions, or the whole image for all pairs.
        valid_NK: where there is such a thing.
        scale: of cosines.
    """
    own_NK = scale * (image_NKD * features.local_text_NKD).sum(dim=-1)
    false_NKJ = scale * (image_NKD[:, :, None] * features.negative_text_NKJD).sum(dim=-1)
    valid_NK = valid_NK & features.valid_local_NK
    valid_NKJ = features.valid_negative_NKJ & valid_NK[..., None]
    return against_negatives(own_NK, false_NKJ, valid_NKJ, features.weight_NK)
