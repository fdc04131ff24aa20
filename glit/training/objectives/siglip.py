"""``siglip``: a sigmoid loss for every image and caption, with a learned scale and bias.

L = -1/N sum_i sum_j log sigmoid(z_ij (exp(t') x_i . y_j + b)),  z_ii = 1, else -1

(Zhai, Mustafa, Kolesnikov, Beyer: Sigmoid Loss for Language Image Pre-Training, ICCV 2023,
section 3.2 and algorithm 1). ``t'`` and ``b`` are learned and begin at ln 10 and -10, so that at
first nearly every pair counts as wrong, as nearly every pair is. CLIP's own logit scale is not
used and stays what it was. A SigLIP model has learned both already: its own are taken, go on
learning, and are saved in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from glit.models.clip.encoder import ClipEncoder
from glit.models.clip.siglip import SiglipEncoder
from glit.plain import limited
from glit.training.features import Features
from glit.training.losses import sigmoid_loss
from glit.training.module import Encoded, LearnedScales, ModuleOutput, ObjectiveModule
from glit.training.objective import InputSpec, Loss, Objective, logged


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
        return LearnedScales(scale=10.0, bias=-10.0)

    def __call__(self, features: Features, logit_scale: Float[Tensor, ""]) -> Loss:
        """The loss, and where scale and bias have got to."""
        scale, bias = features.numbers["scale"], features.numbers["bias"]
        loss = sigmoid_loss(features.image_ND, features.text_ND, scale, bias, features.valid_N)
        # several processes wait for a gradient of every parameter, CLIP's own scale among them
        return logged(loss + 0 * logit_scale, siglip_scale=scale, siglip_bias=bias)
