"""``finelip``: condensed patches and words, compared by late interaction, in a triplet loss.

X' = softmax(W_q GELU(X W_k)^T / tau) X                                          (section 3.2)
R(I, T) = mean_i max_j v'_i . t'_j + mean_j max_i v'_i . t'_j                    (Eq. 1)
L = mean_i max_j [R(I_i, T_j) - R(I_i, T_i) + a]_+ + the same of every text      (Eq. 2)

(Asokan, Wu, Albreiki: FineLIP, CVPR 2025.) V' are the class token and the patches condensed to
0.2 of their number, T' the end token and the words condensed to 0.2 of the text window; cosines.

What the paper leaves open, and what is done here:

- Which negatives: the hardest one in the batch, since T^- is one text; ``negatives = "sum"`` takes
  all of them, as a copy of the authors' code does. Equal captions are no negatives of each other.
- The mean over queries; the copy sums, which AdamW does not notice.
- No contrastive loss besides, as section 3.3 says ("instead of"), so CLIP's logit scale stays.
- Patches go through the vision tower's post-layernorm before the projection, as the class token
  does; the copy leaves it out. The copy also counts the start token as a word, and shrinks negative
  cosines to a tenth (LAPS), of which the paper says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from glit.models.clip.encoder import ClipEncoder
from glit.models.clip.finelip import FineLipTokens, Refine
from glit.models.clip.late_interaction import late_interaction
from glit.plain import limited
from glit.training.features import Features
from glit.training.module import Encoded, ModuleOutput, ObjectiveModule
from glit.training.objective import InputSpec, Loss, Objective, logged

Negatives = Literal["hardest", "sum"]


class FineLipModule(ObjectiveModule):
    """Both refinements."""

    def __init__(self, tokens: FineLipTokens) -> None:
        super().__init__()
        self.tokens = tokens

    def forward(self, encoded: Encoded) -> ModuleOutput:
        features, tokens, encoder = encoded.features, encoded.tokens, encoded.encoder
        assert tokens is not None
        images, valid_images = self.tokens.of_images(encoder, tokens.patch_BPH, features.image_ND)
        texts, valid_texts = self.tokens.of_texts(
            encoder, tokens.token_BLH, tokens.valid_token_BL, features.text_ND
        )
        return ModuleOutput(
            rows={"image_tokens": images, "text_tokens": texts},
            valid={"image_tokens": valid_images, "text_tokens": valid_texts},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FineLip(Objective):
    """The triplet loss over FineLIP's score."""

    margin: float = limited(0.2, above=0)
    """The triplet margin, Eq. 2's alpha."""
    negatives: Negatives = "hardest"
    """``hardest`` compares with the best wrong sample of the batch, ``sum`` with all wrong
    samples."""
    aggregation_ratio: float = limited(0.2, above=0, most=1)
    """Ratio of the numbers of tokens after and before refinement (Table 3C)."""
    refine: Refine = "both"
    """The tokens to condense: ``both``, ``image``, ``text`` or ``none`` (Table 3B)."""
    global_tokens: bool = True
    """True compares the class token and the end token with the others (Table 3D)."""
    refinement_lr: float = limited(2e-4, above=0)
    """Highest learning rate of the refinements; the encoders use ``train.lr``."""

    @property
    def needs(self) -> InputSpec:
        return InputSpec(tokens=True)

    @property
    def module_lr(self) -> float:
        return self.refinement_lr

    def module(self, encoder: ClipEncoder) -> FineLipModule:
        return FineLipModule(
            FineLipTokens(
                encoder,
                ratio=self.aggregation_ratio,
                refine=self.refine,
                global_tokens=self.global_tokens,
            )
        )

    def __call__(self, features: Features, logit_scale: Float[Tensor, ""]) -> Loss:
        """The triplet loss, and the mean score of the right pairs."""
        made, valid = features.made, features.valid_made
        score_NN = late_interaction(
            made["image_tokens"], valid["image_tokens"], made["text_tokens"], valid["text_tokens"]
        )
        both_NN = features.valid_N[:, None] & features.valid_N
        negative_NN = both_NN & ~features.equal_captions()
        loss = triplet(score_NN, negative_NN, features.valid_N, self.margin, self.negatives)
        own_N = score_NN.diagonal() * features.valid_N
        # several processes wait for a gradient of every parameter, CLIP's own scale among them
        score = own_N.sum() / features.valid_N.sum().clamp_min(1)
        return logged(loss + 0 * logit_scale, loss_triplet=loss, score=score)


def triplet(
    score_NN: Float[Tensor, "n n"],
    negative_NN: Bool[Tensor, "n n"],
    valid_N: Bool[Tensor, " n"],
    margin: float,
    negatives: Negatives = "hardest",
) -> Float[Tensor, ""]:
    """Mean over queries of how far wrong pairs come within the margin of the right one, both ways
    (FineLIP Eq. 2).

    Worked case: scores ((1, 0.9), (0.5, 1)) and margin 0.2: rows 0.1 and 0, columns 0 and 0.1, so
    0.05 + 0.05.

    Args:
        score_NN: of image i and text j; pair i is (i, i).
        negative_NN: which pairs are wrong; symmetric.
        valid_N: which pairs are queries.
        margin: Eq. 2's alpha.
        negatives: the worst of them counts, or the sum of all.
    """
    own_N = score_NN.diagonal()

    def way(rows_NN: Tensor) -> Tensor:
        error_NN = (margin + rows_NN - own_N[:, None]).clamp_min(0)
        error_NN = torch.where(negative_NN, error_NN, torch.zeros_like(error_NN))
        error_N = error_NN.amax(dim=1) if negatives == "hardest" else error_NN.sum(dim=1)
        return (error_N * valid_N).sum() / valid_N.sum().clamp_min(1)

    return way(score_NN) + way(score_NN.T)
