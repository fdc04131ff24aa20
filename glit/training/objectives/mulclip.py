"""``mulclip``: long and first-sentence contrast, word-patch reconstruction, sentences on patches.

L = L_global + lambda_word L_Word + lambda_sub L_Sub                                     (Eq. 11)
L_global = C(v_cls, t_long) + lambda_short C(v_cls, t_short)                             (Eq. 3)
X' = softmax(W_q GELU(X W_k)^T / tau) X, of patches and of words                         (Eq. 4)
V' = softmax(v' t'^T / sqrt d) t',  T' = softmax(t' v'^T / sqrt d) v'                    (Eq. 5, 6)
L_Word = C_sample(v', V') + C_sample(t', T')                                             (Eq. 7, 8)
a_i = softmax(t_i v'^T / sqrt d) v',  L_Sub = 1/M sum_i C(a_i, t_i)                      (Eq. 9, 10)

(MulCLIP, under review for ICLR 2026.) C is the pairwise sigmoid loss over the batch, C_sample the
same over the tokens of one sample, the diagonal right. What the paper leaves open, and what is
done here:

- Attention is over projected tokens as they are: normalised ones over sqrt d would make it uniform.
  The losses take cosines.
- Scale and bias of the sigmoid: a learned pair that begins at 10 and -10 (SigLIP's) for C in
  L_global, 10 and -10 themselves for the local terms.
- L_Sub compares the i-th sentences of the samples that have one, and every sentence counts 1/M of
  its own sample's M.
- t_short is the dataset's short caption where it has one, which then also takes the first
  sentence's place in L_Sub, and else the first sentence.
- The number of condensed words is half the text window, whatever the caption's length; padding is
  masked. Twenty sentences: Table 13 calls 15 the default, but Table 2's figures are its row of 20.

Every row of Tables 5, 6, 10 and 14 and every total of Eq. 11 to 17 is a setting, see the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from glit.models.clip.encoder import ClipEncoder
from glit.models.clip.late_interaction import late_interaction
from glit.models.clip.refinement import TokenRefinement, widened, words
from glit.plain import limited
from glit.recipes.config import require_value
from glit.text.spans import Span
from glit.training.features import Features
from glit.training.losses import sigmoid_errors, sigmoid_loss
from glit.training.module import Encoded, LearnedScales, ModuleOutput
from glit.training.objective import InputSpec, Loss, Objective, logged
from glit.training.objectives.finelip import triplet

WordLoss = Literal["reconstruction", "image", "text", "contrast", "clim", "clim-global"]
LOCAL_SCALE, LOCAL_BIAS = 10.0, -10.0
_MARGIN = 0.2  # FineLIP's, in the variants with its score


class MulClipModule(LearnedScales):
    """Scale and bias of the global losses, and the refinements that the settings need."""

    def __init__(self, encoder: ClipEncoder, objective: MulClip) -> None:
        super().__init__(scale=10.0, bias=-10.0)
        self.objective = objective
        self.num_words = max(1, encoder.context - 2)
        ratio, width = objective.calibration_ratio, encoder.width
        self.image = self.text = None
        if objective.calibrate and objective.lambda_word + objective.lambda_sub > 0:
            self.image = TokenRefinement(width, max(1, int(ratio * encoder.grid**2)))
        if objective.calibrate and objective.lambda_word > 0:
            self.text = TokenRefinement(width, max(1, int(ratio * self.num_words)))

    def forward(self, encoded: Encoded) -> ModuleOutput:
        numbers = self.numbers()
        if not self.objective.local:
            return ModuleOutput(numbers=numbers)
        with torch.autocast(encoded.features.image_ND.device.type, enabled=False):
            return self._made(encoded, numbers)

    def _made(self, encoded: Encoded, numbers: dict[str, Tensor]) -> ModuleOutput:
        tokens, objective = encoded.tokens, self.objective
        assert tokens is not None
        patch_BPD = encoded.encoder.patch_features(tokens.patch_BPH.float())
        if self.image is not None:
            patch_BPD = self.image(patch_BPD)
        rows: dict[str, Tensor] = {}
        valid: dict[str, Tensor] = {}
        if objective.lambda_sub:
            further_BSD = tokens.further_BSD.float()
            rows["aggregated"] = F.normalize(attended(further_BSD, patch_BPD), dim=-1)
        if objective.lambda_word:
            word_BLH, word_BL = words(tokens.token_BLH.float(), tokens.valid_token_BL)
            word_BLD = encoded.encoder.token_features(word_BLH)
            if self.text is not None:
                word_BLD = self.text(word_BLD, word_BL)
                word_BL = word_BL.any(dim=1, keepdim=True).expand(-1, word_BLD.shape[1])
            if objective.word_loss in ("reconstruction", "image", "text"):
                image_B, text_B = reconstruction(patch_BPD, word_BLD, word_BL)
                rows |= {"word_image": image_B, "word_text": text_B}
                valid["words"] = word_BL.any(dim=1)
            else:
                patches, found = self._compared(patch_BPD, word_BLD, word_BL)
                rows |= {"image_tokens": patches, "text_tokens": found[0]}
                valid["words"] = found[1]
        return ModuleOutput(rows=rows, valid=valid, numbers=numbers)

    def _compared(
        self, patch_BPD: Tensor, word_BLD: Tensor, word_BL: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Embeddings of patches, and of words with which of them there are; of their means."""
        if self.objective.word_loss == "contrast":
            weight_BL1 = word_BL[..., None].to(word_BLD.dtype)
            total_B1 = weight_BL1.sum(dim=1).clamp_min(1)
            word_B1D = ((word_BLD * weight_BL1).sum(dim=1) / total_B1)[:, None]
            patch_BPD, word_BLD = patch_BPD.mean(dim=1, keepdim=True), word_B1D
            word_BL = word_BL.any(dim=1, keepdim=True)
        elif self.text is None:
            word_BLD, word_BL = widened(word_BLD, word_BL, self.num_words)
        return F.normalize(patch_BPD, dim=-1), (F.normalize(word_BLD, dim=-1), word_BL)


@dataclass(frozen=True, slots=True, kw_only=True)
class MulClip(Objective):
    """MulCLIP's three terms; weights of zero and ``calibrate`` give Table 5."""

    lambda_global: float = limited(1.0, least=0)
    """Weight of the global losses; 0 is "No global" of Table 14 (Eq. 13)."""
    lambda_short: float = limited(0.5, least=0)
    """Weight of the first sentence's loss within the global ones (Eq. 3)."""
    lambda_word: float = limited(1.0, least=0)
    """Weight of the words' and patches' term (Eq. 11); 0 is "w/o WPR" of Table 5."""
    lambda_sub: float = limited(1.0, least=0)
    """Weight of the sentences' and patches' term (Eq. 11); 0 is "w/o SAP" of Table 5."""
    calibrate: bool = True
    """True condenses patches and words first; false is "w/o LC" of Table 5."""
    calibration_ratio: float = limited(0.5, above=0, most=1)
    """Ratio of the numbers of tokens after and before condensing."""
    word_loss: WordLoss = "reconstruction"
    """``reconstruction`` works both ways; ``image`` or ``text`` reconstructs one side; ``contrast``
    compares the mean patch and the mean word over the batch (Table 10); ``clim`` is FineLIP's
    triplet over the condensed tokens (Table 6, Eq. 16); ``clim-global`` includes class and end
    token (Eq. 15)."""
    max_sentences: int = limited(20, least=1)
    """Most sentences compared per caption (Table 13)."""
    refinement_lr: float = limited(2e-4, above=0)
    """Highest learning rate of refinements, scale and bias; the encoders use ``train.lr``."""

    def check(self) -> None:
        some = self.lambda_global + self.lambda_word + self.lambda_sub > 0
        require_value(
            some, "train.lambda_global, lambda_word, lambda_sub: all are 0; wanted one above"
        )

    @property
    def local(self) -> bool:
        """True if tokens are compared at all."""
        return self.lambda_word + self.lambda_sub > 0

    takes_short: ClassVar[bool] = True

    @property
    def needs(self) -> InputSpec:
        return InputSpec(tokens=self.local, num_texts=self.max_sentences if self.lambda_sub else 1)

    @property
    def module_lr(self) -> float:
        return self.refinement_lr

    def texts(
        self,
        caption: str,
        sentences: Sequence[Span],
        draw: np.random.Generator,
        short: str | None = None,
    ) -> Sequence[str]:
        """The first sentences; a short caption takes the first one's place."""
        found = [caption[start:end] for start, end in sentences[: self.needs.num_texts]]
        return [short, *found[1:]] if short else found

    def module(self, encoder: ClipEncoder) -> MulClipModule:
        return MulClipModule(encoder, self)

    def __call__(self, features: Features, logit_scale: Float[Tensor, ""]) -> Loss:
        """The weighted sum and its terms."""
        scale, bias = features.numbers["scale"], features.numbers["bias"]
        valid_N = features.valid_N
        # several processes wait for a gradient of every parameter, whatever the weights are
        loss = 0 * (logit_scale + scale + bias)
        metrics = {"siglip_scale": scale, "siglip_bias": bias}
        if self.lambda_global:
            image_ND, first_ND = features.image_ND, features.further_text_NSD[:, 0]
            with_first_N = valid_N & features.valid_further_NS[:, 0]
            long = sigmoid_loss(image_ND, features.text_ND, scale, bias, valid_N)
            short = sigmoid_loss(image_ND, first_ND, scale, bias, with_first_N)
            loss = loss + self.lambda_global * (long + self.lambda_short * short)
            metrics |= {"loss_long": long, "loss_short": short}
        if self.lambda_word:
            word = self._word(features)
            loss = loss + self.lambda_word * word
            metrics["loss_word"] = word
        if self.lambda_sub:
            sub = sentences_on_patches(
                features.made["aggregated"],
                features.further_text_NSD,
                features.valid_further_NS & valid_N[:, None],
            )
            loss = loss + self.lambda_sub * sub
            metrics["loss_sub"] = sub
        return logged(loss, **metrics)

    def _word(self, features: Features) -> Float[Tensor, ""]:
        """L_Word (Eq. 8), or what stands in its place."""
        made, there, valid_N = features.made, features.valid_made["words"], features.valid_N
        if self.word_loss in ("reconstruction", "image", "text"):
            counted_N = valid_N & there
            error_N = made["word_image"] * (self.word_loss != "text")
            error_N = error_N + made["word_text"] * (self.word_loss != "image")
            return (error_N * counted_N).sum() / counted_N.sum().clamp_min(1)
        image, text = made["image_tokens"], made["text_tokens"]
        if self.word_loss == "contrast":
            counted_N = valid_N & there[:, 0]
            return sigmoid_loss(image[:, 0], text[:, 0], LOCAL_SCALE, LOCAL_BIAS, counted_N)
        with_words_N = there.any(dim=1)
        if self.word_loss == "clim-global":
            image = torch.cat([features.image_ND[:, None], image], dim=1)
            text = torch.cat([features.text_ND[:, None], text], dim=1)
            there, with_words_N = F.pad(there, (1, 0), value=True), torch.ones_like(valid_N)
        everything = torch.ones(image.shape[:2], dtype=torch.bool, device=image.device)
        counted_N = valid_N & with_words_N
        score_NN = late_interaction(image, everything, text, there)
        wrong_NN = counted_N[:, None] & counted_N & ~features.equal_captions()
        return triplet(score_NN, wrong_NN, counted_N, _MARGIN)


def attended(
    query_BQD: Float[Tensor, "b q d"],
    token_BTD: Float[Tensor, "b t d"],
    valid_BT: Bool[Tensor, "b t"] | None = None,
) -> Float[Tensor, "b q d"]:
    """softmax(Q X^T / sqrt d) X, for every query the mean of the tokens most like it (Eq. 5, 6
    and 9)."""
    logits_BQT = query_BQD @ token_BTD.transpose(1, 2) / token_BTD.shape[-1] ** 0.5
    if valid_BT is not None:
        lowest = torch.finfo(logits_BQT.dtype).min
        logits_BQT = logits_BQT.masked_fill(~valid_BT[:, None], lowest)
    return logits_BQT.softmax(dim=-1) @ token_BTD


def reconstruction(
    patch_BPD: Float[Tensor, "b p d"],
    word_BLD: Float[Tensor, "b l d"],
    valid_BL: Bool[Tensor, "b l"],
) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
    """L_recon of the patches and of the words of every sample (Eq. 5 to 7)."""
    word_BLD = torch.where(valid_BL[..., None], word_BLD, torch.zeros_like(word_BLD))
    patches_back_BPD = attended(patch_BPD, word_BLD, valid_BL)
    words_back_BLD = attended(word_BLD, patch_BPD)
    everything_BP = torch.ones(patch_BPD.shape[:2], dtype=torch.bool, device=patch_BPD.device)
    return (
        within_samples(patch_BPD, patches_back_BPD, everything_BP),
        within_samples(word_BLD, words_back_BLD, valid_BL),
    )


def within_samples(
    token_BTD: Float[Tensor, "b t d"],
    back_BTD: Float[Tensor, "b t d"],
    valid_BT: Bool[Tensor, "b t"],
) -> Float[Tensor, " b"]:
    """The sigmoid loss of a sample's tokens and their reconstructions, 1/T sum_i sum_j (Eq. 7).

    Worked case: two orthogonal tokens that come back as they were give
    ln(1 + e^0) + ln(1 + e^-10) = 0.6932.
    """
    token_BTD, back_BTD = F.normalize(token_BTD, dim=-1), F.normalize(back_BTD, dim=-1)
    return sigmoid_loss(token_BTD, back_BTD, LOCAL_SCALE, LOCAL_BIAS, valid_BT)


def sentences_on_patches(
    aggregated_NSD: Float[Tensor, "n s d"],
    sentence_NSD: Float[Tensor, "n s d"],
    valid_NS: Bool[Tensor, "n s"],
) -> Float[Tensor, ""]:
    """L_Sub (Eq. 10): at every position the sigmoid loss of the samples that have a sentence there.

    Every sentence counts one over the number of its own sample's. Embeddings are L2-normalised.

    Worked case: two samples of one sentence each, orthogonal, aggregated as they are: (2 ln 2 +
    2 ln(1 + e^-10)) / 2 = 0.6932.
    """
    both = aggregated_NSD.transpose(0, 1), sentence_NSD.transpose(0, 1)
    error_SNM = sigmoid_errors(*both, LOCAL_SCALE, LOCAL_BIAS)
    valid_SN = valid_NS.T
    number_N = valid_NS.sum(dim=1)
    share_SN = valid_SN / number_N.clamp_min(1)
    both_SNM = share_SN[:, :, None] * valid_SN[:, None, :]
    return (error_SNM * both_SNM).sum() / (number_N > 0).sum().clamp_min(1)
