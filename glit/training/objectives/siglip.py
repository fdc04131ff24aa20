"""``siglip``: a sigmoid loss for every image and caption, with a learned scale and bias.

L = -1/N sum_i sum_j log sigmoid(z_ij (exp(t') x_i . y_j + b)),  z_ii = 1, else -1

(Zhai, Mustafa, Kolesnikov, Beyer: Sigmoid Loss for Language Image Pre-Training, ICCV 2023,
section 3.2 and algorithm 1). ``t'`` and ``b`` are learned and begin at ln 10 and -10, so that at
first nearly every pair counts as wrong, as nearly every pair is. CLIP's own logit scale is not
used and stays what it was. A SigLIP model has learned both already: its own are taken, go on
learning, and are saved in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from glit.models.clip.encoder import ClipEncoder
from glit.models.clip.siglip import SiglipEncoder
from glit.plain import limited
from glit.training.features import Features
from glit.training.module import Encoded, ModuleOutput, ObjectiveModule
from glit.training.objective import InputSpec, Loss, Objective, logged


class ScaleAndBias(ObjectiveModule):
    """The two learned numbers of the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(math.log(10.0)))
        self.bias = nn.Parameter(torch.tensor(-10.0))

    def forward(self, encoded: Encoded) -> ModuleOutput:
        return ModuleOutput(numbers={"scale": self.log_scale.exp(), "bias": self.bias})


class ModelsOwn(ObjectiveModule):
    """The two numbers that a SigLIP model brings; they learn at ``train.lr``, as the model does."""

    def forward(self, encoded: Encoded) -> ModuleOutput:
        encoder = encoded.encoder
        assert isinstance(encoder, SiglipEncoder)
        return ModuleOutput(numbers={"scale": encoder.logit_scale, "bias": encoder.logit_bias})


@dataclass(frozen=True, slots=True, kw_only=True)
class Siglip(Objective):
    """The pairwise sigmoid loss over whole images and whole captions."""

    siglip_lr: float = limited(1e-3, above=0)
    """Highest learning rate of the scale and the bias. The encoders use ``train.lr``, and so do the
    scale and the bias of a SigLIP start."""

    @property
    def needs(self) -> InputSpec:
        return InputSpec()

    @property
    def module_lr(self) -> float:
        return self.siglip_lr

    def module(self, encoder: ClipEncoder) -> ObjectiveModule:
        if isinstance(encoder, SiglipEncoder):
            encoder.clip.get_parameter("logit_bias").requires_grad_(True)
            return ModelsOwn()
        return ScaleAndBias()

    def __call__(self, features: Features, logit_scale: Float[Tensor, ""]) -> Loss:
        """The loss, and where scale and bias have got to."""
        scale, bias = features.numbers["scale"], features.numbers["bias"]
        loss = sigmoid_loss(features.image_ND, features.text_ND, scale, bias, features.valid_N)
        # several processes wait for a gradient of every parameter, CLIP's own scale among them
        return logged(loss + 0 * logit_scale, siglip_scale=scale, siglip_bias=bias)


def sigmoid_loss(
    image_ND: Float[Tensor, "n d"],
    text_ND: Float[Tensor, "n d"],
    scale: Float[Tensor, ""],
    bias: Float[Tensor, ""],
    valid_N: Bool[Tensor, " n"] | None = None,
    equal_NN: Bool[Tensor, "n n"] | None = None,
) -> Float[Tensor, ""]:
    """The pairwise loss; pair i is (image i, text i). Without any pair it is zero.

    Only the images and texts that ``valid_N`` names count; all of them if it is None. Where
    ``equal_NN`` says that two texts are equal, they are no negatives.

    Worked case: two orthogonal pairs at scale 1 and bias 0 give
    (2 ln(1 + e^-1) + 2 ln 2) / 2 = 1.0064.
    """
    logits_NN = scale * image_ND @ text_ND.T + bias
    own_NN = torch.eye(len(logits_NN), device=logits_NN.device)
    sign_NN = 2 * own_NN - 1
    error_NN = -F.logsigmoid(sign_NN * logits_NN)
    if equal_NN is not None:
        error_NN = error_NN * (own_NN.bool() | ~equal_NN)
    if valid_N is None:
        return error_NN.sum() / max(1, len(logits_NN))
    return (error_NN * (valid_N[:, None] & valid_N)).sum() / valid_N.sum().clamp_min(1)
