"""Both encoders of F-CAST, with random weights or those of a CLIP that fit."""

from __future__ import annotations

import copy
from typing import Any, Literal

from jaxtyping import Float, UInt8
from torch import Tensor, nn

from glit.models.clip.encoder import ClipEncoder
from glit.training.objectives.f_cast.text import TwoStageText
from glit.training.objectives.f_cast.vision import CastEncoder

Start = Literal["scratch", "clip"]


class FCastEncoder(nn.Module):
    """CAST and the two-stage text encoder.

    ``start = "clip"`` takes of the CLIP every tensor whose name and shape it has: layers as far as
    they reach, token and position embeddings, norms, projections. The stem, the groupings, the
    adapter and the class tokens have no counterpart there.
    """

    def __init__(
        self,
        encoder: ClipEncoder,
        *,
        depths: tuple[int, ...],
        text_depths: tuple[int, int],
        num_segments: tuple[int, ...],
        num_chunks: int,
        start: Start,
    ) -> None:
        from transformers import CLIPModel

        super().__init__()
        config: Any = copy.deepcopy(encoder.clip.config)
        config.vision_config.num_hidden_layers = sum(depths)
        config.text_config.num_hidden_layers = sum(text_depths)
        model = CLIPModel(config)
        if start == "clip":
            own = model.state_dict()
            given = encoder.clip.state_dict()
            fitting = {
                name: value
                for name, value in given.items()
                if name in own and own[name].shape == value.shape
            }
            model.load_state_dict(fitting, strict=False)
        self.vision = CastEncoder(model, depths=depths, num_segments=num_segments)
        self.text = TwoStageText(model, num_first=text_depths[0], num_chunks=num_chunks)
        self.mean_3: Tensor
        self.std_3: Tensor
        self.register_buffer("mean_3", encoder.mean_3.clone(), persistent=False)
        self.register_buffer("std_3", encoder.std_3.clone(), persistent=False)

    def images(
        self, pixels_B3SS: UInt8[Tensor, "b 3 s s"], segments_BHW: UInt8[Tensor, "b h w"]
    ) -> tuple[Float[Tensor, "b f d"], Float[Tensor, "b d"]]:
        """Part and whole features of images; not normalised."""
        dtype = self.vision.class_token.dtype
        mean, std = (v.to(dtype)[:, None, None] for v in (self.mean_3, self.std_3))
        return self.vision((pixels_B3SS.to(dtype) - mean) / std, segments_BHW)
