"""OpenCLIP's checkpoints under the names of CLIPModel.

A folder as its ``push_to_hf_hub`` writes it holds ``open_clip_config.json`` and
``open_clip_model.safetensors``. Taken are CLIP's own architectures (a vision transformer with a
class token, a causal text transformer, either activation). A configuration that asks for anything
else (timm, ResNet, CoCa, another text model, attentional pooling, ...) is refused by its key.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glit.errors import WeightsError
from glit.models.clip.image_processor import CLIP_MEAN, CLIP_STD, Preprocessing, three
from glit.models.files import OPEN_CLIP_CONFIG as CONFIG

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import CLIPConfig

WEIGHTS = "open_clip_model.safetensors"

_TAKEN = {
    "model_cfg": {"embed_dim", "vision_cfg", "text_cfg", "quick_gelu", "custom_text"},
    "vision_cfg": {"image_size", "layers", "width", "head_width", "patch_size", "mlp_ratio"},
    "text_cfg": {"context_length", "vocab_size", "width", "heads", "layers", "mlp_ratio"},
}
_WITHOUT_EFFECT = {
    "init_logit_scale", "nonscalar_logit_scale", "patch_dropout", "output_tokens", "output_dict",
    "attn_pooler_queries", "attn_pooler_heads", "pad_id", "eos_id", "hf_model_pretrained",
    "timm_model_pretrained", "timm_pool", "timm_proj",
}  # fmt: skip
"""On what a finished model of CLIP's architecture answers."""
_CLIPS_OWN = {
    "pool_type": ("tok", "argmax"),
    "pos_embed_type": ("learnable",),
    "proj_type": ("linear",),
    "block_type": ("default",),
}
"""Keys that may be set, to what CLIP does."""

_IMAGE_VALUES: dict[str, tuple[str, ...]] = {
    "mean": (), "std": (), "size": (), "fill_color": (), "mode": ("RGB",),
    "interpolation": ("bicubic", "bilinear", "random"), "resize_mode": ("shortest", "squash"),
}  # fmt: skip
"""Keys of preprocess_cfg and what they may be, anything if empty; ``random`` is bicubic in
evaluation, and nothing is filled here."""
_WANTED = "wanted model_cfg with vision_cfg and text_cfg; download it again"

_BLOCK = {
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "attn.out_proj": "self_attn.out_proj",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}
_ALONE = {
    "logit_scale": "logit_scale",
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "ln_final.weight": "text_model.final_layer_norm.weight",
    "ln_final.bias": "text_model.final_layer_norm.bias",
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
    "visual.ln_pre.weight": "vision_model.pre_layrnorm.weight",
    "visual.ln_pre.bias": "vision_model.pre_layrnorm.bias",
    "visual.ln_post.weight": "vision_model.post_layernorm.weight",
    "visual.ln_post.bias": "vision_model.post_layernorm.bias",
}
_TURNED = {"text_projection": "text_projection.weight", "visual.proj": "visual_projection.weight"}
"""x W there, W x here."""
_TOWERS = {
    "transformer.resblocks.": "text_model.encoder.layers.",
    "visual.transformer.resblocks.": "vision_model.encoder.layers.",
}


def open_clip_config(folder: Path) -> CLIPConfig:
    """The configuration of OpenCLIP's folder as a CLIPModel's.

    Raises:
        WeightsError: it is damaged, or not of CLIP's architecture.
    """
    return _clip_config(_read(folder)["model_cfg"], folder / CONFIG)


def preprocessing(folder: Path) -> Preprocessing:
    """Return how images of OpenCLIP's folder are prepared.

    Raises:
        WeightsError: in a way that is not ours.
    """
    found = _read(folder).get("preprocess_cfg") or {}
    for key, value in found.items():
        fit = _IMAGE_VALUES.get(key)
        if value and (fit is None or (fit and value not in fit)):
            wanted = f"wanted {' or '.join(fit)}" if fit else "this key is not followed here"
            raise WeightsError(f"{folder / CONFIG}: preprocess_cfg.{key} = {value!r}: {wanted}")
    try:
        return Preprocessing(
            mean=three("mean", found.get("mean") or CLIP_MEAN),
            std=three("std", found.get("std") or CLIP_STD),
            fit="resize" if found.get("resize_mode") == "squash" else "centre-crop",
            mode="bilinear" if found.get("interpolation") == "bilinear" else "bicubic",
        )
    except ValueError as error:
        raise WeightsError(f"{folder / CONFIG}: preprocess_cfg.{error}") from error


def _read(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        model = found["model_cfg"]
        whole = all(isinstance(model[key], dict) for key in ("vision_cfg", "text_cfg"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WeightsError(f"{path}: {_WANTED} ({type(error).__name__})") from error
    if not whole:
        raise WeightsError(f"{path}: {_WANTED}")
    return found


def _clip_config(model: dict[str, Any], path: Path) -> CLIPConfig:
    from transformers import CLIPConfig

    vision, text = model["vision_cfg"], model["text_cfg"]
    for where, keys in (("model_cfg", model), ("vision_cfg", vision), ("text_cfg", text)):
        for key, value in keys.items():
            plain = key in _TAKEN[where] or key in _WITHOUT_EFFECT or not value
            if not plain and value not in _CLIPS_OWN.get(key, ()):
                raise WeightsError(
                    f"{path}: {where}.{key} = {value!r} is not CLIP's architecture, which alone "
                    "can be trained and measured here; give another checkpoint"
                )
    act = "quick_gelu" if model.get("quick_gelu") else "gelu"
    whole = _Sizes(model, path, "model_cfg")
    seen, read = _Sizes(vision, path, "vision_cfg"), _Sizes(text, path, "text_cfg")
    dimensions, vocabulary = whole.number("embed_dim", None), read.number("vocab_size", 49408)
    width, text_width = seen.number("width", 768), read.number("width", 512)
    return CLIPConfig(
        projection_dim=dimensions,
        vision_config={
            "hidden_size": width,
            "intermediate_size": seen.times(width, "mlp_ratio", 4.0),
            "num_hidden_layers": seen.number("layers", 12),
            "num_attention_heads": width // seen.number("head_width", 64),
            "image_size": seen.number("image_size", 224),
            "patch_size": seen.number("patch_size", 16),
            "hidden_act": act,
            "projection_dim": dimensions,
        },
        text_config={
            "hidden_size": text_width,
            "intermediate_size": read.times(text_width, "mlp_ratio", 4.0),
            "num_hidden_layers": read.number("layers", 12),
            "num_attention_heads": read.number("heads", 8),
            "max_position_embeddings": read.number("context_length", 77),
            "vocab_size": vocabulary,
            "hidden_act": act,
            "projection_dim": dimensions,
            "bos_token_id": vocabulary - 2,
            "eos_token_id": vocabulary - 1,
            "pad_token_id": vocabulary - 1,
        },
    )


class _Sizes:
    """Sizes that a part of the configuration gives, refused by name where they are none."""

    def __init__(self, values: Mapping[str, Any], path: Path, where: str) -> None:
        self._values, self._path, self._where = values, path, where

    def number(self, key: str, default: int | None) -> int:
        found = self._values.get(key, default)
        if type(found) is not int or found < 1:
            raise self._refused(key, found, "a whole number above 0")
        return found

    def times(self, width: int, key: str, default: float) -> int:
        """``width`` times a ratio, rounded down."""
        ratio = self._values.get(key, default)
        if type(ratio) not in (int, float) or not 1 <= width * ratio < math.inf:
            raise self._refused(key, ratio, "a ratio above 0")
        return int(width * ratio)

    def _refused(self, key: str, found: object, wanted: str) -> WeightsError:
        return WeightsError(
            f"{self._path}: {self._where}.{key} = {found!r}: wanted {wanted}; ResNets and oblong "
            "images cannot be trained or measured here"
        )


def shape_fault(
    weights: Mapping[str, Tensor], shapes: Mapping[str, torch.Size], *, wanted_by: str
) -> str:
    """The first weight that has not the shape wanted, or is missing, or too many; empty if none."""
    for name in sorted({*shapes} | {*weights}):
        found = weights[name].shape if name in weights else None
        if found != shapes.get(name):
            return f"{name} is {_shown(found)}, but {wanted_by} says {_shown(shapes.get(name))}"
    return ""


def clip_names(weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """OpenCLIP's or OpenAI's weights under CLIPModel's names; those of no such name keep theirs."""
    for given, stored in weights.items():
        value = stored.float()
        name = given.removeprefix("text.")  # where the text tower stands apart (custom_text)
        if name in _TURNED:
            yield _TURNED[name], value.T.contiguous()
        elif name in _ALONE:
            yield _ALONE[name], value.reshape(()) if name == "logit_scale" else value
        elif name != "attn_mask":
            yield from _of_block(name, value)


def _of_block(name: str, value: Tensor) -> Iterator[tuple[str, Tensor]]:
    start = next((start for start in _TOWERS if name.startswith(start)), None)
    if start is None:
        yield name, value
        return
    number, _, rest = name.removeprefix(start).partition(".")
    layer = f"{_TOWERS[start]}{number}"
    part, _, kind = rest.rpartition(".")
    if rest.startswith("attn.in_proj_"):
        for which, third in zip("qkv", value.chunk(3), strict=True):
            yield f"{layer}.self_attn.{which}_proj.{rest.removeprefix('attn.in_proj_')}", third
    else:
        yield f"{layer}.{_BLOCK.get(part, part)}.{kind}", value


def _shown(shape: torch.Size | None) -> str:
    return "missing" if shape is None else f"of shape {tuple(shape)}"
