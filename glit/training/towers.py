"""Select the parameters of CLIP's two towers, trained or frozen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from glit.errors import RecipeError
from glit.training.config import TrainConfig

if TYPE_CHECKING:
    from transformers import CLIPModel


def towers(clip: CLIPModel) -> dict[str, list[nn.Module]]:
    """The modules of each tower, its projection among them; the logit scale belongs to neither."""
    if clip.config.model_type == "siglip":
        return {"image": [clip.vision_model], "text": [clip.text_model]}
    return {
        "image": [clip.vision_model, clip.visual_projection],
        "text": [clip.text_model, clip.text_projection],
    }


def lock_towers(clip: CLIPModel, config: TrainConfig) -> None:
    """Freeze the towers that ``train.lock_image`` and ``train.lock_text`` name.

    Of a locked tower the last ``train.unlocked_blocks`` blocks are trained all the same, with the
    norm and the projection after them.

    Raises:
        RecipeError: a tower has not as many blocks.
    """
    vision: Any = clip.vision_model
    text: Any = clip.text_model
    siglip = clip.config.model_type == "siglip"
    for name, modules in towers(clip).items():
        if not getattr(config, f"lock_{name}"):
            continue
        if name == "image":
            blocks, norm = vision.encoder.layers, vision.post_layernorm
        else:
            blocks, norm = text.encoder.layers, text.final_layer_norm
        projection = modules[0].get_submodule("head") if siglip else modules[1]
        if config.unlocked_blocks > len(blocks):
            raise RecipeError(
                f"train.unlocked_blocks = {config.unlocked_blocks}: the {name} tower has "
                f"{len(blocks)}; to train all of it, leave train.lock_{name} out"
            )
        for module in modules:
            module.requires_grad_(False)
        if config.unlocked_blocks:
            for module in (*blocks[-config.unlocked_blocks :], norm, projection):
                module.requires_grad_(True)
